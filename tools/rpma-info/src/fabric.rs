// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Which fabric a program gets, and why.

use rpma::info;
use serde::Serialize;

use crate::finding::{Finding, Severity};

#[derive(Serialize)]
pub(crate) struct Fabric {
    /// The value of RPMA_FABRIC.
    asked: Option<String>,
    /// `verbs`, `soft`, or none.
    pub(crate) chosen: Option<&'static str>,
    pub(crate) reason: String,
    #[serde(skip)]
    pub(crate) kind: Option<info::Fabric>,
    #[serde(skip)]
    warned: bool,
}

pub(crate) fn look() -> Fabric {
    let choice = info::choice();
    Fabric {
        asked: choice.asked,
        chosen: choice.fabric.map(|fabric| match fabric {
            info::Fabric::Verbs => "verbs",
            info::Fabric::Soft => "soft",
        }),
        reason: choice.reason,
        kind: choice.fabric,
        warned: choice.warned,
    }
}

impl Fabric {
    pub(crate) fn finding(&self) -> Option<Finding> {
        if self.chosen.is_none() {
            return Some(Finding::new(
                "no-fabric",
                Severity::Problem,
                self.reason.clone(),
                "set RPMA_FABRIC to auto, verbs or soft, or install libibverbs1 and librdmacm1 (rdma-core) for verbs",
            ));
        }
        self.warned.then(|| {
            Finding::new(
                "no-device",
                Severity::Warning,
                "there is no RDMA device, so programs get the software fabric; both sides have to use it",
                "if there should be one: load its driver (`rdma link` lists devices; soft-RoCE: `rdma link add rxe0 type rxe netdev DEVICE`), \
                 and in a container pass /dev/infiniband on; if not: RPMA_FABRIC=soft says that it is meant",
            )
        })
    }
}
