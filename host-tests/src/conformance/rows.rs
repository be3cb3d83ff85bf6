//! The rows of the test matrix that are conformance: which driver, how it is made, with which capacities.

use hedgerow_host::Host;
use libtest_mimic::Trial;

use super::Suite;
use super::lab::Tight;

/// A row.
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    /// Its trials, or why there are none here.
    pub trials: fn(name: &str) -> Result<Vec<Trial>, String>,
}

/// All rows.
pub static ROWS: &[Row] = &[
    Row { name: "host", about: "the host driver", trials: host },
    Row {
        name: "host-tiny",
        about: "the host driver with one word of cells and two cuts an axis, so that writes widen",
        trials: host_tiny,
    },
];

/// The host driver's own ends: nothing allocated, nothing left to report.
fn watched(suite: Suite<Host<'static>>) -> Suite<Host<'static>> {
    suite
        .finish(|host| match (host.live_allocations(), host.take_drop_error()) {
            (0, None) => Ok(()),
            (live, error) => Err(format!("{live} live allocations, drop error {error:?}")),
        })
        .drop_error(Host::take_drop_error)
}

/// A discrete device without alignment, and with limits that trials can reach.
fn host(name: &str) -> Result<Vec<Trial>, String> {
    let open = |_| Ok(Host::new().max_binding(16 << 20).max_allocation(24 << 20));
    Ok(watched(Suite::new(name, open)).trials())
}

/// Unified, aligned, and in need of room at every turn.
fn host_tiny(name: &str) -> Result<Vec<Trial>, String> {
    let open = |_| {
        let host = Host::new().bind_align(64).max_binding(16 << 20).max_allocation(24 << 20);
        Ok(host)
    };
    Ok(watched(Suite::new(name, open)).capacity::<Tight>(false).trials())
}
