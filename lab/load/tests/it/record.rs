//! One phase of a scenario, run to its end.

use std::sync::mpsc;

use weir_engine::settings::Address;
use weir_load::{Event, RunError, StepRecord, scenario};

/// Runs the phase. Every request that was intended has ended in exactly one way.
///
/// # Errors
/// The run cannot begin, or breaks off.
pub fn record(scenario: &scenario::Scenario, target: &Address) -> Result<StepRecord, RunError> {
    let (events, told) = mpsc::channel();
    weir_load::run(scenario, target, &events)?;
    drop(events);
    let step = told.into_iter().find_map(|event| match event {
        Event::Step { record, .. } => Some(*record),
        _ => None,
    });
    let record = step.expect("a record");
    assert_eq!(record.counts.ended(), record.counts.intended, "{:?}", record.counts);
    Ok(record)
}
