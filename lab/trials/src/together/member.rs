//! One of the processes: runs its part as the conductor orders, and tells it everything.

use std::io;
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use weir_engine::settings::Address;
use weir_load::{Barrier, Event, Part, RunError, Scenario, Start, Threshold, run_part, scenario};

use super::protocol::{self, Job, Order, Report};

/// Serves the conductor on standard input and output until the run is over. It ends this process if the conductor is gone.
///
/// # Errors
/// There is no job, or the run failed. The conductor has the reason.
pub fn serve() -> Result<()> {
    let Some(Order::Job(job)) = protocol::read(&mut io::stdin().lock())? else {
        bail!("the first line is no job: this command is for `weir lab load --processes`, which starts it");
    };
    let (part, target, scenario) = read(&job)?;
    weir_engine::net::raise_descriptor_limit().context("the limit of open files")?;
    let (orders, ordered) = mpsc::channel();
    thread::spawn(move || listen(&orders));
    let (events, told) = mpsc::channel();
    let run =
        thread::spawn(move || run_part(&scenario, &target, part, job.run_id, &mut Conducted { ordered }, &events));
    let mut phase = 0;
    for event in told {
        match event {
            Event::Second(second) => {
                send_report(&Report::Second { phase, index: second.index, slice: Box::new(second.slice) });
            }
            Event::Step { record, .. } => {
                send_report(&Report::Step(record));
                phase += 1;
            }
            Event::Preloading(_) | Event::Phase { .. } => {}
        }
    }
    match run.join().unwrap_or(Err(RunError::Panicked)) {
        Ok(()) => send_report(&Report::Done),
        // Its message is on standard error, and so will be this: the conductor shows both.
        Err(error @ RunError::Panicked) => return Err(error.into()),
        Err(error) => send_report(&Report::Failed(error.to_string())),
    }
    Ok(())
}

fn read(job: &Job) -> Result<(Part, Address, Scenario)> {
    if job.schema != protocol::SCHEMA {
        bail!(
            "the job is {:?}, this version knows {:?}: was the program replaced meanwhile?",
            job.schema,
            protocol::SCHEMA
        );
    }
    let part = Part::from_str(&job.part).map_err(|error| anyhow!("part {:?}: {error}", job.part))?;
    let target = Address::from_str(&job.target).map_err(|error| anyhow!("target {:?}: {error}", job.target))?;
    let more = job.thresholds.iter().map(|text| text.parse::<Threshold>()).collect::<Result<Vec<_>, _>>()?;
    let scenario = scenario::parse_with("the scenario", &job.scenario, &more)?;
    Ok((part, target, scenario))
}

/// Hands orders over until the conductor has no more.
fn listen(orders: &mpsc::Sender<Order>) {
    while let Ok(Some(order)) = protocol::read(&mut io::stdin().lock()) {
        if orders.send(order).is_err() {
            break;
        }
    }
    leave();
}

/// Ends the process. The conductor listens until this process has ended, so it is gone, and an orphaned load must end at
/// once. A phase cannot be interrupted; the process can.
fn leave() -> ! {
    std::process::exit(1)
}

fn send_report(report: &Report) {
    if protocol::write(&mut io::stdout().lock(), report).is_err() {
        leave();
    }
}

/// The barrier is the conductor's.
struct Conducted {
    ordered: Receiver<Order>,
}

impl Conducted {
    /// The next order. Only a mistake of the conductor makes it another one than that which is waited for.
    fn next(&self) -> Result<Order, String> {
        self.ordered.recv().map_err(|_| "the conductor is gone".to_owned())
    }
}

impl Barrier for Conducted {
    fn connected(&mut self) -> Result<(), String> {
        send_report(&Report::Connected);
        match self.next()? {
            Order::AllConnected => Ok(()),
            other => Err(format!("an order out of turn: {other:?}")),
        }
    }

    fn ready(&mut self, phase: usize) -> Result<Start, String> {
        send_report(&Report::Ready { index: phase });
        match self.next()? {
            Order::Phase { index, begins_unix_us } if index == phase => Ok(Start::at_unix_micros(begins_unix_us)),
            other => Err(format!("an order out of turn: {other:?}")),
        }
    }
}
