//! Serves a flags origin until its standard input ends, then prints what it did.
//!
//! `cargo run --release -p weir-origin --example flags_origin -- 4242 large`

use std::{error::Error, io::Read, net::SocketAddr};

use weir_origin::flags::{FlagsOriginSettings, start};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |index: usize, default: &str| args.get(index).cloned().unwrap_or_else(|| default.to_owned());
    let port: u16 = arg(0, "0").parse()?;
    let settings = FlagsOriginSettings {
        bind: SocketAddr::from(([127, 0, 0, 1], port)).into(),
        data: arg(1, "large").parse()?,
        ..FlagsOriginSettings::default()
    };
    let origin = start(settings)?;
    println!("{}", origin.addresses()[0]);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    std::thread::sleep(std::time::Duration::from_millis(250));
    let stats = origin.stats();
    let micros = stats.cpu.as_secs_f64() * 1e6 / stats.requests.max(1) as f64;
    println!("{stats:?}: {micros:.3} µs of CPU per request");
    origin.stop()?;
    Ok(())
}
