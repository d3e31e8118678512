//! tokio-postgres: `tokio-postgres-driver URL`. It prints a line for each check: `ok NAME` or `failed NAME: REASON`.
#![forbid(unsafe_code)]

mod checks;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

/// How a check ends; an error carries its reason.
pub type End = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A check with its name.
pub type Check = (&'static str, fn(String) -> Pin<Box<dyn Future<Output = End> + Send>>);

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: tokio-postgres-driver URL");
        return ExitCode::from(2);
    };
    let mut failed = 0;
    for (name, body) in checks::ALL {
        // A task of its own: a panic is a failure of its check alone.
        let task = tokio::spawn(tokio::time::timeout(Duration::from_secs(30), body(url.clone())));
        let reason = match task.await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(error.to_string()),
            Ok(Err(_)) => Some("no end after 30 s".to_owned()),
            Err(panic) => Some(panic.to_string()),
        };
        match reason {
            None => println!("ok {name}"),
            Some(reason) => {
                failed += 1;
                println!("failed {name}: {}", reason.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    println!("end {} checks", checks::ALL.len());
    if failed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
