//! Metrics of the process itself, read from `/proc` at each scrape.

use std::fs;

use weir_telemetry::{Family, SharedMetrics, catalog};

/// Writes the process metrics into the registry. Values that `/proc` does not report stay unchanged.
pub(crate) fn publish(metrics: &SharedMetrics) {
    let usage = Usage::read();
    if let Some(seconds) = usage.cpu_seconds {
        let counter = metrics.counter(&catalog::PROCESS_CPU_SECONDS, &[]);
        counter.advance_to(in_cells(&catalog::PROCESS_CPU_SECONDS, seconds) as u64);
    }
    for (family, value) in [
        (&catalog::PROCESS_RESIDENT_BYTES, usage.resident_bytes),
        (&catalog::PROCESS_OPEN_FDS, usage.open_descriptors),
        (&catalog::PROCESS_MAX_FDS, usage.descriptors_max),
        (&catalog::PROCESS_START_TIME, usage.start_seconds),
    ] {
        if let Some(value) = value {
            metrics.gauge(family, &[]).set(in_cells(family, value) as i64);
        }
    }
}

/// A value in the unit that the family's cells count in.
fn in_cells(family: &Family, value: f64) -> f64 {
    (value * family.unit.divisor() as f64).round()
}

/// Resource usage of the process; `None` where `/proc` does not report it.
struct Usage {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    /// Since 1970.
    start_seconds: Option<f64>,
    open_descriptors: Option<f64>,
    descriptors_max: Option<f64>,
}

impl Usage {
    fn read() -> Self {
        let machine = Machine::read();
        let stat = fs::read_to_string("/proc/self/stat").ok();
        let stat = stat.as_deref().and_then(Stat::parse);
        let both = stat.as_ref().zip(machine.as_ref());
        Self {
            cpu_seconds: both.map(|(stat, machine)| stat.cpu_ticks / machine.ticks_per_second),
            resident_bytes: both.map(|(stat, machine)| stat.resident_pages * machine.page_bytes),
            start_seconds: both
                .map(|(stat, machine)| machine.boot_seconds + stat.start_ticks / machine.ticks_per_second),
            open_descriptors: open_descriptors(),
            descriptors_max: fs::read_to_string("/proc/self/limits").ok().and_then(|limits| descriptors_max(&limits)),
        }
    }
}

/// Fields of `/proc/self/stat`, numbered in proc_pid_stat(5).
struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything, so the fields are counted from the last parenthesis;
        // the first after it is field 3.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, start_ticks: field(22)?, resident_pages: field(24)? })
    }
}

/// Constants of the machine that `/proc` counts in.
struct Machine {
    ticks_per_second: f64,
    page_bytes: f64,
    boot_seconds: f64,
}

impl Machine {
    fn read() -> Option<Self> {
        let auxiliary = fs::read("/proc/self/auxv").ok()?;
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Some(Self {
            ticks_per_second: auxiliary_value(&auxiliary, AT_CLKTCK)?,
            page_bytes: auxiliary_value(&auxiliary, AT_PAGESZ)?,
            boot_seconds: stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?,
        })
    }
}

/// Keys of the auxiliary vector, getauxval(3); it spares a call into libc for two constants.
const AT_PAGESZ: usize = 6;
const AT_CLKTCK: usize = 17;

fn auxiliary_value(vector: &[u8], key: usize) -> Option<f64> {
    const WORD: usize = size_of::<usize>();
    vector.chunks_exact(2 * WORD).find_map(|pair| {
        let (found, value) = pair.split_at(WORD);
        let found = usize::from_ne_bytes(found.try_into().ok()?);
        let value = usize::from_ne_bytes(value.try_into().ok()?);
        (found == key && value > 0).then_some(value as f64)
    })
}

/// Since Linux 6.2 the size of the directory is the count; before, it is 0 and the entries are counted, less
/// the one that the counting itself opens.
fn open_descriptors() -> Option<f64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 {
        return Some(size as f64);
    }
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(entries.saturating_sub(1) as f64)
}

/// The soft limit; `None` if it is `unlimited`.
fn descriptors_max(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_does_not_shift_the_fields() {
        let text =
            "7 (a) b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 5 0 1234 8192000 300 18446744073709551615";
        let stat = Stat::parse(text).expect("a complete line");
        assert_eq!(stat.cpu_ticks, 300.0);
        assert_eq!(stat.start_ticks, 1234.0);
        assert_eq!(stat.resident_pages, 300.0);
    }

    #[test]
    fn a_short_stat_line_gives_nothing() {
        assert!(Stat::parse("7 (weir) S 1 7").is_none());
        assert!(Stat::parse("").is_none());
    }

    #[test]
    fn the_soft_limit_of_descriptors_is_read() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 524288               files     \n";
        assert_eq!(descriptors_max(limits), Some(1024.0));
        assert_eq!(descriptors_max("Max open files            unlimited            unlimited            files"), None);
    }

    #[test]
    fn this_process_has_plausible_values() {
        let usage = Usage::read();
        assert!(usage.cpu_seconds.expect("cpu") >= 0.0);
        assert!(usage.resident_bytes.expect("resident") > 100_000.0);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("a clock after 1970")
            .as_secs_f64();
        let age = now - usage.start_seconds.expect("start");
        assert!((-2.0..86_400.0).contains(&age), "age {age} s");
        let open = usage.open_descriptors.expect("open");
        assert!(open >= 3.0 && usage.descriptors_max.is_none_or(|max| open <= max));
    }
}
