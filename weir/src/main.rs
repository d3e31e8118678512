//! `weir`: one gateway for every protocol that services and agents speak, and the lab that finds how much it carries.
//!
//! This binary is command line and wiring; the rooms of the workspace do the work. See `ARCHITECTURE.md`.

#![forbid(unsafe_code)]

mod admin_client;
mod broken_pipe;
mod check;
mod completion;
mod config_diff;
mod demo;
mod explain;
mod front;
mod gateway;
mod import;
mod init;
mod keys;
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
mod man;
mod origin;
mod plan;
mod program_log;
mod routes;
mod run;
mod shards;
mod systemd;
mod top;
mod upgrade;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// One gateway for every protocol that services and agents speak.
#[derive(Parser)]
#[command(
    name = "weir",
    version = version::TEXT,
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
    #[command(flatten)]
    Front(front::FrontCommand),
    Init(init::InitArgs),
    Run(run::RunArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    #[command(subcommand)]
    Config(config_diff::ConfigCommand),
    Demo(demo::DemoArgs),
    Upgrade(upgrade::request::UpgradeArgs),
    Top(top::TopArgs),
    Plan(plan::PlanArgs),
    Routes(routes::RoutesArgs),
    #[command(subcommand)]
    Import(import::ImportCommand),
    Shards(shards::ShardsArgs),
    #[command(subcommand)]
    Keys(Box<keys::KeysCommand>),
    Completion(completion::CompletionArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
    /// Measure how much load the gateway carries, and compare it with other gateways.
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
    weir_load::program::name(version::PROFILE, version::COMMIT);
    broken_pipe::quietly(|| {
        dispatch(Cli::parse().command).unwrap_or_else(|text| {
            eprintln!("weir: {text}");
            ExitCode::FAILURE
        })
    })
}

fn dispatch(command: Command) -> Result<ExitCode, String> {
    match command {
        // The exit codes of these two are the verdicts on thresholds.
        Command::Lab(Lab::Load(args)) => return lab_load::run(&args),
        Command::Lab(Lab::Merge(args)) => return lab_merge::run(&args),
        Command::Front(command) => front::run(&command),
        Command::Init(args) => init::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Config(command) => config_diff::run(&command),
        Command::Demo(args) => demo::run(&args),
        Command::Upgrade(args) => upgrade::request::run(&args),
        Command::Top(args) => top::run(&args).map_err(|error| error.to_string()),
        Command::Plan(args) => plan::run(&args),
        Command::Routes(args) => routes::run(&args),
        Command::Import(command) => import::run(&command),
        Command::Shards(args) => shards::run(&args),
        Command::Keys(command) => keys::run(&command),
        Command::Completion(args) => completion::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Lab(Lab::Origin(command)) => origin::run(&command),
        Command::Lab(Lab::LoadPart) => weir_trials::together::member::serve().map_err(|error| format!("{error:#}")),
        Command::Lab(Lab::Relay(args)) => lab_relay::run(&args),
        Command::Lab(Lab::Knee(args)) => lab_knee::run(&args),
        Command::Lab(Lab::Size(args)) => lab_size::run(&args),
        Command::Lab(Lab::Compare(args)) => lab_compare::run(&args),
        Command::Lab(Lab::Profile(args)) => lab_profile::run(&args),
        Command::Lab(Lab::Ladder(args)) => lab_sweep::ladder(&args),
        Command::Lab(Lab::Cores(args)) => lab_sweep::cores(&args),
        Command::Lab(Lab::Report(args)) => lab_report::run(&args),
    }
    .map(|()| ExitCode::SUCCESS)
}
