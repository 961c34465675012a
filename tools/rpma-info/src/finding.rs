// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Traps that users fall into, each with its cure.

use std::env;

use rpma::log::Level;
use serde::Serialize;

use crate::fabric::Fabric;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It does not work like this: what was asked for cannot be used.
    Problem,
    /// It works, but may not be what is meant, or fail later.
    Warning,
}

#[derive(Serialize)]
pub(crate) struct Finding {
    /// For programs; does not change.
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    pub(crate) cure: String,
}

impl Finding {
    pub(crate) fn new(
        name: &'static str,
        severity: Severity,
        text: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Finding {
            name,
            severity,
            text: text.into(),
            cure: cure.into(),
        }
    }
}

/// Variables whose values the library does not understand.
pub(crate) fn check_environment(fabric: &Fabric, findings: &mut Vec<Finding>) {
    if fabric.chosen == Some("soft")
        && let Some(value) = env::var_os("RPMA_SOFT_CARRIER")
        && !matches!(value.to_str(), Some("" | "auto" | "tcp" | "local"))
    {
        findings.push(Finding::new(
            "carrier",
            Severity::Problem,
            format!(
                "RPMA_SOFT_CARRIER={} means nothing, so the software fabric makes no connection",
                value.display()
            ),
            "use one of auto, tcp, local",
        ));
    }
    for name in ["RPMA_LOG_LEVEL", "RPMA_LOG_STDERR_LEVEL"] {
        if let Some(value) = env::var_os(name)
            && !value.is_empty()
            && value.to_str().and_then(Level::from_name).is_none()
        {
            findings.push(Finding::new(
                "log-level",
                Severity::Warning,
                format!("{name}={} names no level and is ignored", value.display()),
                "use one of disabled, fatal, error, warning, notice, info, debug",
            ));
        }
    }
}
