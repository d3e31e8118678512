//! `torture PORT [CLIENTS [SECONDS [SEED]]]`: tortures what listens on a port of this machine, PostgreSQL or a gateway in front of
//! it, and prints its findings. The server has the users and tables of `weir_tests::postgres::torture::prepare`. The status is 0
//! if nothing was found.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use weir_tests::postgres::torture::Torture;

fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|word| word.parse().ok()).collect();
    let Some([port, rest @ ..]) = numbers.as_deref() else {
        eprintln!("usage: torture PORT [CLIENTS [SECONDS [SEED]]]");
        return ExitCode::from(2);
    };
    let Ok(port) = u16::try_from(*port) else {
        eprintln!("torture: {port} is no port");
        return ExitCode::from(2);
    };
    let number = |index: usize, absent: u64| rest.get(index).copied().unwrap_or(absent);
    let clients = u32::try_from(number(0, 200)).unwrap_or(200);
    let torture = Torture { port, clients, duration: Duration::from_secs(number(1, 30)), seed: number(2, 1) };
    let report = torture.run();
    println!("{report}");
    if report.counts.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
