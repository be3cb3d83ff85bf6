//! The demo: the main job on every driver that this machine has.

use std::process::ExitCode;

fn main() -> ExitCode {
    hedgerow_tests::demo::main()
}
