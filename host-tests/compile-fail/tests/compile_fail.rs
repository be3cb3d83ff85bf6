//! What the borrow checker and the traits promise: each case is a program that must not compile, with the errors
//! that say why; `passes_` are programs beside the line that must.
//!
//! The messages are those of the Rust version that the workspace states. `TRYBUILD=overwrite cargo test
//! --package hedgerow-compile-fail` writes them anew, to be read before they are believed.

#[test]
fn what_must_not_compile_does_not() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/cases/passes_*.rs");
    cases.compile_fail("tests/cases/fails_*.rs");
}
