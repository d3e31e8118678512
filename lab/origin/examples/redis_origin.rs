//! Serves an origin until its standard input ends, then prints what it did.
//!
//! `cargo run --release -p weir-origin --example redis_origin -- memory 7000`
//! `cargo run --release -p weir-origin --example redis_origin -- fixed:64 7000 2`

use std::{error::Error, io::Read, net::SocketAddr};

use weir_origin::redis::{Mode, OriginSettings, start};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &str| args.get(index).cloned().unwrap_or_else(|| default.to_owned());
    let mode = match arg(0, "memory").split_once(':') {
        Some(("fixed", payload)) => Mode::Fixed { payload: payload.parse()? },
        _ => Mode::Memory,
    };
    let port: u16 = arg(1, "0").parse()?;
    let origin = start(OriginSettings {
        bind: SocketAddr::from(([127, 0, 0, 1], port)).into(),
        mode,
        workers: arg(2, "1").parse()?,
        ..OriginSettings::default()
    })?;
    println!("{}", origin.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    std::thread::sleep(std::time::Duration::from_millis(250));
    let stats = origin.stats();
    let micros = stats.cpu.as_secs_f64() * 1e6 / stats.requests.max(1) as f64;
    println!("{stats:?}: {micros:.3} µs of CPU per request");
    origin.stop()?;
    Ok(())
}
