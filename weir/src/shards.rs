//! `weir shards`: which part of the keys each server of a sharded Redis upstream gets, before a key is there.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use clap::Args;
use weir_upstream::placement::{Distribution, Placement, PlacementSettings};

/// Show the share of the keys that each shard of a Redis upstream gets, and warn if one share is over 1.2 times an even share.
///
/// The shares depend on the keys. With --keys-from, the command uses a sample of your own keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir shards weir.toml\n  weir shards weir.toml --prefix session: --keys 1000000\n  \
                        redis-cli --scan | head -100000 | weir shards weir.toml --keys-from -\n\n\
                        Exit status: 0, also with a warning; 1, the file has mistakes or no sharded upstream."
)]
pub struct ShardsArgs {
    /// The configuration file.
    file: PathBuf,

    /// Show only this upstream.
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,

    /// Number of keys to generate, 1 to 10000000. A key is the prefix and a number, counted from 0.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    keys: u32,

    /// Prefix of the generated keys.
    #[arg(long, default_value = "user:")]
    prefix: String,

    /// Read the keys from this file, one per line, instead of generating them; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "prefix"])]
    keys_from: Option<PathBuf>,
}

/// Share of a shard, as a multiple of an even share, from which it is warned about.
const SKEW_MAX: f64 = 1.2;
/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 40.0;

/// Runs the command.
///
/// # Errors
/// In words: the file has mistakes, no upstream in it is sharded, or the keys cannot be read.
pub fn run(args: &ShardsArgs) -> Result<(), String> {
    let snapshot = weir_config::check_offline(&args.file, &|name| std::env::var(name).ok()).map_err(|diagnostics| {
        eprintln!("{diagnostics}");
        format!("{}: {}", args.file.display(), crate::check::mistakes(&diagnostics))
    })?;
    let (keys, what) = keys(args)?;
    let mut text = String::new();
    for upstream in &snapshot.upstreams {
        let settings = &upstream.settings;
        let is_wanted = args.upstream.as_ref().is_none_or(|name| **name == *settings.name);
        if let Some(placement) = settings.placement.as_ref().filter(|_| is_wanted) {
            let endpoints: Vec<String> = settings.endpoints.iter().map(ToString::to_string).collect();
            text += &format!("upstream {}, {what}\n{}", settings.name, report(placement, &endpoints, &keys));
        }
    }
    if text.is_empty() {
        let which =
            args.upstream.as_ref().map_or_else(|| "no upstream".to_owned(), |name| format!("no upstream \"{name}\""));
        return Err(format!(
            "{}: {which} with [upstream.sharding]; with another topology the servers say who has which keys",
            args.file.display()
        ));
    }
    print!("{text}");
    Ok(())
}

/// The keys, and what they are in words.
fn keys(args: &ShardsArgs) -> Result<(Vec<Vec<u8>>, String), String> {
    let Some(path) = &args.keys_from else {
        let last = args.keys - 1;
        let keys = (0..args.keys).map(|number| format!("{}{number}", args.prefix).into_bytes()).collect();
        return Ok((keys, format!("{} keys {}0 to {}{last}", args.keys, args.prefix, args.prefix)));
    };
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_end(&mut bytes).map(drop),
        false => fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let keys: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    match keys.len() {
        0 => Err(format!("{}: no keys in it; write one per line", path.display())),
        count => Ok((keys, format!("{count} keys of {}", path.display()))),
    }
}

/// Keys of each endpoint.
fn counts(placement: &PlacementSettings, endpoints: &[String], keys: &[Vec<u8>]) -> Vec<u64> {
    let placement = Placement::new(placement.clone(), endpoints);
    let mut counts = vec![0; endpoints.len()];
    for key in keys {
        counts[usize::from(placement.place(key))] += 1;
    }
    counts
}

/// The largest share, as a multiple of an even one.
fn skew(counts: &[u64]) -> f64 {
    let largest = counts.iter().max().copied().unwrap_or_default();
    largest as f64 * counts.len() as f64 / counts.iter().sum::<u64>().max(1) as f64
}

fn report(settings: &PlacementSettings, endpoints: &[String], keys: &[Vec<u8>]) -> String {
    let counts = counts(settings, endpoints, keys);
    let (total, largest) = (keys.len().max(1) as f64, counts.iter().max().copied().unwrap_or(1).max(1) as f64);
    let width = endpoints.iter().map(String::len).max().unwrap_or_default();
    let mut text = String::new();
    for (endpoint, count) in endpoints.iter().zip(&counts) {
        let bar = "#".repeat((*count as f64 / largest * BAR_COLUMNS).round() as usize);
        let even = *count as f64 * endpoints.len() as f64 / total;
        text +=
            &format!("  {endpoint:<width$} {count:>9} {:>5.1} %  {even:>4.2}x  {bar}\n", *count as f64 / total * 100.0);
    }
    text + &judgement(settings, endpoints, keys, skew(&counts))
}

fn judgement(settings: &PlacementSettings, endpoints: &[String], keys: &[Vec<u8>], found: f64) -> String {
    if found <= SKEW_MAX {
        return format!("even: the largest share is {found:.2} times an even one\n");
    }
    let mut text =
        format!("warning: the largest share is {found:.2} times an even one; that server is full and busy first\n");
    let maglev = Distribution::Maglev;
    let even = PlacementSettings { distribution: maglev, hash: maglev.default_hash(), hash_tag: settings.hash_tag };
    let other = skew(&counts(&even, endpoints, keys));
    text += &match other <= SKEW_MAX {
        true => format!(
            "  distribution = \"maglev\", without a hash of its own, would make it {other:.2}. Keys that are there already would be \
             looked for elsewhere.\n"
        ),
        false => "  another distribution does not help: many of these keys have the same hash tag, or they are few\n"
            .to_owned(),
    };
    text
}

#[cfg(test)]
mod tests {
    use weir_upstream::placement::KeyHash;

    use super::*;

    fn settings(distribution: Distribution, hash: KeyHash) -> PlacementSettings {
        PlacementSettings { distribution, hash, hash_tag: None }
    }

    fn keys(count: u32) -> Vec<Vec<u8>> {
        (0..count).map(|number| format!("user:{number}").into_bytes()).collect()
    }

    fn endpoints() -> Vec<String> {
        [6381, 6382, 6383].map(|port| format!("127.0.0.1:{port}")).to_vec()
    }

    #[test]
    fn similar_keys_with_a_twemproxy_hash_are_warned_about() {
        let text = report(&settings(Distribution::Ketama, KeyHash::Fnv1a64), &endpoints(), &keys(600));
        let shares: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).take(3).collect();
        assert_eq!(shares, ["230", "20", "350"], "{text}");
        assert!(text.contains("warning: the largest share is 1.75 times") && text.contains("\"maglev\""), "{text}");
    }

    #[test]
    fn an_even_placement_is_called_even() {
        let text = report(&settings(Distribution::Maglev, KeyHash::Murmur2), &endpoints(), &keys(60_000));
        assert!(text.contains("even: the largest share is 1.0"), "{text}");
    }

    #[test]
    fn keys_of_one_tag_are_helped_by_no_distribution() {
        let hash_tag = Some(weir_upstream::placement::HashTag { open: b'{', close: b'}' });
        let keys: Vec<Vec<u8>> = (0..100).map(|number| format!("{{shop}}:{number}").into_bytes()).collect();
        let settings = PlacementSettings { hash_tag, ..settings(Distribution::Maglev, KeyHash::Murmur2) };
        let text = report(&settings, &endpoints(), &keys);
        assert!(text.contains("3.00 times") && text.contains("does not help"), "{text}");
    }
}
