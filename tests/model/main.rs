// SPDX-License-Identifier: BSD-3-Clause
// Copyright 2026, The rpma developers

//! Random histories of several connections, held against a reference model.
//!
//! Each seed makes a scenario: up to four connections between two peers of this process, with or
//! without a shared receive queue, and a series of all operations at both ends, some of them
//! wrong. Whatever is seen (completions, their order, statuses and fields, what every byte of
//! memory is at each completion and in the end, connection events) has to be allowed by the model.
//! A scenario that is not is made smaller before it is reported.
//!
//! The model uses the public interface alone, so it also runs over real RDMA:
//!
//! | variable | meaning |
//! |---|---|
//! | RPMA_MODEL_ADDR | address to listen on and connect to (127.0.0.1) |
//! | RPMA_MODEL_SEEDS | how many seeds (2000) |
//! | RPMA_MODEL_FROM | the first of them (0) |
//! | RPMA_MODEL_SEED | only this one: what a failure tells to set |
//! | RPMA_MODEL_THREADS | how many side by side (2) |
//! | RPMA_MODEL_PATIENCE | how long what has to come may take, in seconds (20) |
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod rules;
mod scenario;
mod stage;
mod world;

use std::cell::{Cell, RefCell};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use stage::Stage;

/// How often a scenario is tried while it is made smaller: what depends on time fails rarely.
const TRIES: usize = 20;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")),
        Err(_) => default,
    }
}

fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: 1,
        failure_persistence: None,
        max_shrink_iters: 400,
        max_shrink_time: 30_000,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Runs one seed on a stage, which is a new one after a failure.
fn run_seed(stage: &RefCell<Option<Stage>>, address: &str, seed: u64) -> Result<(), String> {
    let patience = Duration::from_secs(number("RPMA_MODEL_PATIENCE", 20));
    let shrinking = Cell::new(false);
    let result = runner(seed).run(&scenario::scenario(), |scenario| {
        let tries = if shrinking.get() { TRIES } else { 1 };
        // What hangs in a smaller scenario has hung before.
        let patience = if shrinking.get() {
            patience / 10
        } else {
            patience
        };
        for _ in 0..tries {
            let mut place = stage.borrow_mut();
            if place.is_none() {
                *place = Some(Stage::new(address).map_err(TestCaseError::fail)?);
            }
            let Some(stage) = place.as_mut() else {
                continue;
            };
            if let Err(why) = world::run(stage, &scenario, patience) {
                shrinking.set(true);
                // Its connections are still there: nothing of it can be used again.
                std::mem::forget(place.take());
                return Err(TestCaseError::fail(why));
            }
        }
        Ok(())
    });
    result.map_err(|error| match error {
        TestError::Fail(why, scenario) => format!("{}\n{scenario:#?}", why.message()),
        TestError::Abort(why) => why.message().to_string(),
    })
}

/// The histories themselves; started by the tests below, once for each way to move bytes.
#[test]
#[ignore = "what the other tests start"]
fn histories() {
    let address = std::env::var("RPMA_MODEL_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
    let (from, count) = match std::env::var("RPMA_MODEL_SEED") {
        Ok(_) => (number("RPMA_MODEL_SEED", 0), 1),
        Err(_) => (
            number("RPMA_MODEL_FROM", 0),
            number("RPMA_MODEL_SEEDS", 2000),
        ),
    };
    let next = AtomicU64::new(from);
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..number("RPMA_MODEL_THREADS", 2) {
            scope.spawn(|| {
                let stage = RefCell::new(None);
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        break;
                    }
                    if let Err(why) = run_seed(&stage, &address, seed) {
                        stop.store(true, Ordering::Relaxed);
                        let _ = failure.lock().map(|mut f| f.get_or_insert((seed, why)).0);
                    }
                }
            });
        }
    });
    let failure = failure.lock().ok().and_then(|mut failure| failure.take());
    if let Some((seed, why)) = failure {
        panic!(
            "seed {seed}: {why}\nto replay: RPMA_MODEL_SEED={seed} cargo test --test model -- --ignored histories"
        );
    }
    println!("{count} histories from seed {from}");
}

/// Runs the histories in a process of their own, with these variables.
fn in_own_process(variables: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "histories", "--ignored", "--nocapture"])
        .env("RPMA_LOG_LEVEL", "disabled")
        .env("RPMA_FABRIC", "soft")
        .envs(variables.iter().copied())
        .output()
        .expect("to start");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}: {text}");
    assert!(text.contains("histories from seed"), "{text}");
}

#[test]
fn histories_over_tcp_are_allowed() {
    in_own_process(&[("RPMA_SOFT_CARRIER", "tcp")]);
}

#[test]
fn histories_through_shared_memory_are_allowed() {
    in_own_process(&[("RPMA_SOFT_CARRIER", "local")]);
}
