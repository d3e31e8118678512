//! `weir demo`.
use clap::Args;

/// Demo.
#[derive(Debug, Args)]
pub struct DemoArgs {}

pub fn run(_: &DemoArgs) -> Result<(), String> {
    Err("being built".into())
}
