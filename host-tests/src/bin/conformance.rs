//! Runs one row of the conformance matrix: `conformance --matrix ROW [libtest arguments]`.

use std::process::ExitCode;

use hedgerow_tests::conformance::rows::{ROWS, Row};
use hedgerow_tests::conformance::tally;
use libtest_mimic::Arguments;

/// The exit status of a row that cannot run here.
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().collect();
    let row = match take_row(&mut args) {
        Ok(row) => row,
        Err(error) => {
            eprintln!("{error}\nusage: conformance --matrix ROW [libtest arguments]\nrows:");
            for row in ROWS {
                eprintln!("  {:14} {}", row.name, row.about);
            }
            return ExitCode::from(2);
        }
    };
    let args = Arguments::from_iter(args);
    match (row.trials)(row.name) {
        Ok(trials) => {
            let conclusion = libtest_mimic::run(&args, trials);
            let tally = tally();
            if tally.calls > 0 {
                println!(
                    "{} programs, {} runs with a failing call, in {} of which the caller was told",
                    tally.programs, tally.calls, tally.errors
                );
            }
            conclusion.exit_code()
        }
        Err(reason) => {
            println!("SKIP: {}", reason.replace('\n', " "));
            ExitCode::from(SKIPPED)
        }
    }
}

/// Takes `--matrix ROW` out of the arguments.
fn take_row(args: &mut Vec<std::ffi::OsString>) -> Result<&'static Row, String> {
    let is_option = |arg: &std::ffi::OsString| {
        arg == "--matrix" || arg.to_str().is_some_and(|arg| arg.starts_with("--matrix="))
    };
    let at = args.iter().skip(1).position(is_option).ok_or("which row? give --matrix")? + 1;
    let option = args.remove(at);
    let name = match option.to_str().and_then(|option| option.split_once('=')) {
        Some((_, name)) => name.to_owned(),
        None if at < args.len() => args.remove(at).to_string_lossy().into_owned(),
        None => return Err(String::from("--matrix needs the name of a row")),
    };
    ROWS.iter().find(|row| row.name == name).ok_or_else(|| format!("no row {name:?}"))
}
