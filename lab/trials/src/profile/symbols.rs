//! Parses the output of `perf report` into symbols.

/// Longest name in the table; generic Rust names have no natural end.
const NAME_CHARS_MAX: usize = 110;

/// One symbol with its own time, callees left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Symbol {
    /// Share of all samples.
    pub(crate) percent: f64,
    /// In the kernel.
    pub(crate) is_kernel: bool,
    /// Name, shortened.
    pub(crate) name: String,
    /// Program or library.
    pub(crate) object: String,
}

/// Lines `12.34%<tab>[k] name<tab>object`, largest share first.
pub(crate) fn parse(report: &str) -> Vec<Symbol> {
    let lines = report.lines().filter(|line| !line.starts_with('#'));
    let mut symbols: Vec<Symbol> = lines.filter_map(parse_line).collect();
    symbols.sort_by(|one, other| other.percent.total_cmp(&one.percent));
    symbols
}

fn parse_line(line: &str) -> Option<Symbol> {
    let mut fields = line.split('\t').map(str::trim);
    let percent = fields.next()?.trim_end_matches('%').parse().ok()?;
    let (mode, name) = fields.next()?.split_at_checked(3)?;
    let object = fields.next()?;
    Some(Symbol {
        percent,
        is_kernel: mode == "[k]",
        name: shorten(name.trim().replace('|', "\\|")),
        object: object.to_owned(),
    })
}

fn shorten(name: String) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name;
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_the_kernel_are_read_in_order_of_share() {
        let report =
            "# Overhead\tSymbol\n\n 1.50%\t[.] memcpy\tlibc.so.6\n12.34%\t[k] tcp_sendmsg\t[kernel.kallsyms]\n";
        let symbols = parse(report);
        assert_eq!(symbols.len(), 2);
        assert_eq!((symbols[0].percent, symbols[0].is_kernel, &*symbols[0].name), (12.34, true, "tcp_sendmsg"));
        assert_eq!((symbols[1].is_kernel, &*symbols[1].object), (false, "libc.so.6"));
    }
}
