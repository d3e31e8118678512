//! `weir check`: every mistake of a configuration file, without running it.

use std::path::PathBuf;

use clap::Args;

/// Validate a configuration file: every mistake with file, line, column, what, and how to mend it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weir check weir.toml\n  weir check --schema > weir.schema.json")]
pub struct CheckArgs {
    /// The file to validate.
    #[arg(required_unless_present_any = ["schema", "reference"])]
    file: Option<PathBuf>,

    /// Print the JSON Schema of the file, for editors.
    #[arg(long, conflicts_with = "file")]
    schema: bool,

    /// Print the reference of all keys as Markdown.
    #[arg(long, conflicts_with_all = ["file", "schema"])]
    reference: bool,

    /// Print mistakes as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs) -> Result<(), String> {
    if args.schema {
        println!("{:#}", weir_config::schema());
        return Ok(());
    }
    if args.reference {
        print!("{}", weir_config::reference());
        return Ok(());
    }
    let Some(file) = &args.file else { return Ok(()) };
    match weir_config::load(file, &|name| std::env::var(name).ok()) {
        Ok(snapshot) => {
            show(&snapshot.warnings, args.json);
            if !args.json {
                let (listeners, upstreams) = (snapshot.listeners.len(), snapshot.upstreams.len());
                println!("{}: good ({listeners} listeners, {upstreams} upstreams)", file.display());
            }
            Ok(())
        }
        Err(diagnostics) => {
            show(&diagnostics, args.json);
            Err(format!("{}: {}", file.display(), mistakes(&diagnostics)))
        }
    }
}

/// How many: "1 mistake", "2 mistakes".
pub fn mistakes(diagnostics: &weir_config::Diagnostics) -> String {
    match diagnostics.errors() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    }
}

fn show(diagnostics: &weir_config::Diagnostics, as_json: bool) {
    if as_json {
        println!("{:#}", diagnostics.to_json());
    } else if !diagnostics.is_empty() {
        eprintln!("{diagnostics}");
    }
}
