//! The differences between two shapes, in few words: the value of the run, and the requested value where it differs.

use super::Shape;

/// Between the parts of a row: `GET x 80, 64B, 50 connections`.
const BETWEEN: &str = ", ";

/// Every difference; empty where the run speaks for the shape.
pub(super) fn differences(was: &Shape, options: &Shape) -> Vec<String> {
    let mut all = of_rows(&was.row, &options.row);
    // Budgets are typed as decimals: 0.1, 0.25, 8.
    if (was.budget_vcpu - options.budget_vcpu).abs() > 1e-9 {
        all.push(format!("budget {} vCPU (requested: {})", was.budget_vcpu, options.budget_vcpu));
    }
    let words = [
        ("budget kind", &was.budget_kind, &options.budget_kind),
        ("driver", &was.driver, &options.driver),
        ("tls", &was.tls, &options.tls),
        ("telemetry", &was.telemetry, &options.telemetry),
    ];
    let others = words.iter().filter(|(_, was, options)| was != options);
    all.extend(others.map(|(what, was, options)| format!("{what} {was} (requested: {options})")));
    all
}

/// Parts that only one of two rows has.
fn of_rows(was: &str, options: &str) -> Vec<String> {
    let only = |one: &str, other: &str| -> Vec<String> {
        let known: Vec<&str> = other.split(BETWEEN).collect();
        one.split(BETWEEN).filter(|part| !known.contains(part)).map(str::to_owned).collect()
    };
    let (was, options) = (only(was, options), only(options, was));
    if was.len() == options.len() {
        return was.iter().zip(options).map(|(was, options)| format!("{was} (requested: {options})")).collect();
    }
    match (was.is_empty(), options.is_empty()) {
        (_, true) => was,
        (true, false) => options.iter().map(|part| format!("no {part}")).collect(),
        (false, false) => vec![format!("{} (requested: {})", was.join(BETWEEN), options.join(BETWEEN))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let row = "mixed: GET x 80 + SET x 20, 64B, 50 connections, pipeline 1, poisson, real back end";
        assert_eq!(of_rows(&format!("{row}, quick look"), row), ["quick look"]);
        assert_eq!(of_rows(row, &format!("{row}, quick look")), ["no quick look"]);
        assert_eq!(of_rows(&row.replace("50", "10"), row), ["10 connections (requested: 50 connections)"]);
        assert_eq!(of_rows(row, row), Vec::<String>::new());
    }
}
