//! Ends a command whose output has lost its reader, as in `weir check --reference | head -1`.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook},
    process::ExitCode,
};

/// Exit status of a program that a broken pipe has ended, in shells: 128 and the number of SIGPIPE.
const STATUS: u8 = 141;

/// Runs a command. If its standard output breaks it ends without a word, like a program that SIGPIPE has ended, but what it
/// holds is given back: the lab ends the gateways that it has started.
///
/// Rust ignores SIGPIPE, which a server needs, and `println!` panics instead. So the one place that all commands pass looks
/// for that panic.
pub fn quietly(command: impl FnOnce() -> ExitCode) -> ExitCode {
    let report = take_hook();
    set_hook(Box::new(move |panic| {
        if !is_broken_pipe(panic.payload()) {
            report(panic);
        }
    }));
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(status) => status,
        Err(payload) if is_broken_pipe(&*payload) => ExitCode::from(STATUS),
        Err(payload) => resume_unwind(payload),
    }
}

/// The message of `print!` and `println!`, and EPIPE.
fn is_broken_pipe(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>();
    text.is_some_and(|text| text.starts_with("failed printing to stdout") && text.contains("os error 32"))
}
