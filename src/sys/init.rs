// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! What happens when the library is loaded and unloaded.

use crate::{log, soft};

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn on_load() {
    log::start();
}

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn on_unload() {
    soft::end();
    log::stop();
}

// Miri, which runs the pure parts, knows no system log to open.
// SAFETY: the loader calls the functions listed in this section once, after relocation, with
// arguments that a function without parameters may ignore; it expects just such pointers.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

// SAFETY: as above, before the library is unmapped or the process ends.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".fini_array")]
static ON_UNLOAD: extern "C" fn() = on_unload;
