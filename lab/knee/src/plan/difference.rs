//! In what one shape differs from another, in few words: what a run was, and what was asked where that is something else.

use super::Shape;

/// Between the parts of a row: `GET x 80, 64B, 50 connections`.
const BETWEEN: &str = ", ";

/// Every difference; empty where the run speaks for the shape.
pub(super) fn differences(was: &Shape, asked: &Shape) -> Vec<String> {
    let mut all = of_rows(&was.row, &asked.row);
    // Budgets are typed as decimals: 0.1, 0.25, 8.
    if (was.budget_vcpu - asked.budget_vcpu).abs() > 1e-9 {
        all.push(format!("budget {} vCPU (asked: {})", was.budget_vcpu, asked.budget_vcpu));
    }
    let words = [
        ("budget kind", &was.budget_kind, &asked.budget_kind),
        ("driver", &was.driver, &asked.driver),
        ("tls", &was.tls, &asked.tls),
        ("telemetry", &was.telemetry, &asked.telemetry),
    ];
    let others = words.iter().filter(|(_, was, asked)| was != asked);
    all.extend(others.map(|(what, was, asked)| format!("{what} {was} (asked: {asked})")));
    all
}

/// Parts that only one of two rows has.
fn of_rows(was: &str, asked: &str) -> Vec<String> {
    let only = |one: &str, other: &str| -> Vec<String> {
        let known: Vec<&str> = other.split(BETWEEN).collect();
        one.split(BETWEEN).filter(|part| !known.contains(part)).map(str::to_owned).collect()
    };
    let (was, asked) = (only(was, asked), only(asked, was));
    if was.len() == asked.len() {
        return was.iter().zip(asked).map(|(was, asked)| format!("{was} (asked: {asked})")).collect();
    }
    match (was.is_empty(), asked.is_empty()) {
        (_, true) => was,
        (true, false) => asked.iter().map(|part| format!("no {part}")).collect(),
        (false, false) => vec![format!("{} (asked: {})", was.join(BETWEEN), asked.join(BETWEEN))],
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
        assert_eq!(of_rows(&row.replace("50", "10"), row), ["10 connections (asked: 50 connections)"]);
        assert_eq!(of_rows(row, row), Vec::<String>::new());
    }
}
