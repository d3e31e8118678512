//! Measures the cost of an analysis: `cargo run --release -p weir-analysis --example postgres_cost`.

use std::hint::black_box;
use std::time::Instant;

use weir_analysis::postgres::{Cache, Limits, Reading, analyse, quick};

fn orm_select() -> String {
    let columns: Vec<_> = (0..20).map(|at| format!("\"app_order\".\"column_{at}\"")).collect();
    let joins = "INNER JOIN \"app_customer\" ON (\"app_order\".\"customer_id\" = \"app_customer\".\"id\") LEFT OUTER JOIN \
                 \"app_region\" T4 ON (\"app_customer\".\"region_id\" = T4.\"id\")";
    format!(
        "SELECT {} FROM \"app_order\" {joins} WHERE (\"app_order\".\"status\" IN ($1, $2, $3) AND NOT \
         (\"app_customer\".\"deleted\" AND T4.\"name\" LIKE $4) AND \"app_order\".\"created\" >= $5) ORDER BY \
         \"app_order\".\"created\" DESC, lower(\"app_customer\".\"name\") ASC LIMIT 21 OFFSET 42",
        columns.join(", ")
    )
}

fn long_insert() -> String {
    let rows: Vec<_> =
        (0..150).map(|at| format!("({at}, 'the name of row number {at}', 3.25, NULL, 'it''s text')")).collect();
    format!("INSERT INTO app_rows (id, name, price, note, text) VALUES {}", rows.join(", "))
}

/// Nanoseconds of one call, in the best of many rounds: others use the machine, too.
fn nanoseconds<T>(mut call: impl FnMut() -> T) -> u128 {
    let round = |call: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        start.elapsed().as_nanos() / u128::from(CALLS)
    };
    (0..200).map(|_| round(&mut call)).min().expect("rounds")
}

const CALLS: u32 = 100;

fn main() {
    let limits = Limits::default();
    let mut cache = Cache::new(limits, 1 << 20, 1);
    let pgbench = "SELECT abalance FROM pgbench_accounts WHERE aid = 1234567;".to_owned();
    for (name, text) in [("pgbench select", pgbench), ("ORM select", orm_select()), ("INSERT", long_insert())] {
        let text = text.as_bytes();
        assert!(quick(text, &limits).is_some() && analyse(text, &limits).is_plain());
        let proof = nanoseconds(|| quick(black_box(text), &limits));
        let whole = nanoseconds(|| analyse(black_box(text), &limits));
        let cached = nanoseconds(|| cache.analyse(black_box(text), Reading::Conforming));
        println!("{name}, {} bytes: quick {proof} ns, analyse {whole} ns, cached {cached} ns", text.len());
    }
}
