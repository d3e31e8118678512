//! `weir`: one gateway for every protocol that services and agents speak, and the lab that finds how much it carries.
//!
//! This binary is command line and wiring; the rooms of the workspace do the work. See `ARCHITECTURE.md`.

#![forbid(unsafe_code)]

mod check;
mod demo;
mod gateway;
mod lab_compare;
mod lab_knee;
mod lab_load;
mod lab_merge;
mod lab_page;
mod lab_profile;
mod lab_relay;
mod lab_report;
mod lab_size;
mod lab_sweep;
mod origin;
mod plan;
mod routes;
mod run;
mod systemd;
mod top;
mod upgrade;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One gateway for every protocol that services and agents speak.
#[derive(Parser)]
#[command(
    name = "weir",
    version,
    about,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Demo(demo::DemoArgs),
    Upgrade(upgrade::ask::UpgradeArgs),
    Top(top::TopArgs),
    Plan(plan::PlanArgs),
    Routes(routes::RoutesArgs),
    /// The lab: synthetic back ends, and the tools that measure.
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Subcommand)]
enum Lab {
    #[command(subcommand)]
    Origin(origin::OriginCommand),
    Load(lab_load::LoadArgs),
    /// One of the processes of `weir lab load --processes`, which starts it and talks to it.
    #[command(hide = true)]
    LoadPart,
    Merge(lab_merge::MergeArgs),
    Relay(lab_relay::RelayArgs),
    Knee(lab_knee::KneeArgs),
    Size(lab_size::SizeArgs),
    Compare(lab_compare::CompareArgs),
    Profile(lab_profile::ProfileArgs),
    Ladder(lab_sweep::LadderArgs),
    Cores(lab_sweep::CoresArgs),
    Report(lab_report::ReportArgs),
}

fn main() -> ExitCode {
    // Named once for the process, so that no part of the tree can choose another.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Upgrade(args) => upgrade::ask::run(&args),
        Command::Top(args) => top::run(&args).map_err(|error| error.to_string()),
        Command::Plan(args) => plan::run(&args),
        Command::Routes(args) => routes::run(&args),
        Command::Lab(Lab::Origin(command)) => origin::run(&command),
        // These two end with the verdict of their thresholds.
        Command::Lab(Lab::Load(args)) => match lab_load::run(&args) {
            Ok(code) => return code,
            Err(text) => Err(text),
        },
        Command::Lab(Lab::LoadPart) => weir_trials::together::member::serve().map_err(|error| format!("{error:#}")),
        Command::Lab(Lab::Merge(args)) => match lab_merge::run(&args) {
            Ok(code) => return code,
            Err(text) => Err(text),
        },
        Command::Lab(Lab::Relay(args)) => lab_relay::run(&args),
        Command::Lab(Lab::Knee(args)) => lab_knee::run(&args),
        Command::Lab(Lab::Size(args)) => lab_size::run(&args),
        Command::Lab(Lab::Compare(args)) => lab_compare::run(&args),
        Command::Lab(Lab::Profile(args)) => lab_profile::run(&args),
        Command::Lab(Lab::Ladder(args)) => lab_sweep::ladder(&args),
        Command::Lab(Lab::Cores(args)) => lab_sweep::cores(&args),
        Command::Lab(Lab::Report(args)) => lab_report::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("weir: {text}");
            ExitCode::FAILURE
        }
    }
}
