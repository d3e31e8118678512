//! One line on a lane, and the line that comes back.

use std::rc::Rc;

use weir_base::time::Time;
use weir_engine::timeout;
use weir_listener::{ConnectionHandle, Stage};
use weir_upstream::{ExclusiveLane, LossCause, NoMultiplexer, Refusal, Remains, Tried, Wanted};

use crate::{
    line::Lines,
    service::{EchoUpstream, Service},
};

/// Attempts to connect for one line, if there are fewer endpoints.
const ATTEMPTS: u32 = 3;

/// The answer of the server to a line.
///
/// # Errors
/// The word for the reason why there is none.
pub(crate) async fn exchange(
    service: &Service,
    handle: &ConnectionHandle,
    line: &[u8],
) -> Result<Vec<u8>, &'static str> {
    let upstream = service.upstream();
    let mut is_fresh = false;
    loop {
        let begun = Time::now();
        let mut lane = acquire(&upstream, is_fresh).await.map_err(Refusal::name)?;
        if service.stages.samples() {
            service.stages.record(Stage::LaneWait, begun, Time::now());
        }
        lane.charge_to(handle.account().clone());
        let mut lines = Lines::new(service.line_bytes_max());
        match timeout(upstream.settings().request_timeout, ask(&mut lane, line, &mut lines)).await {
            Ok(Ok(answer)) => {
                lane.give_back(if lines.is_empty() { Remains::Nothing } else { Remains::Bytes });
                return Ok(answer);
            }
            // The server may have closed it while it was idle, and a line that is sent again does no harm.
            Ok(Err(LossCause::Closed)) if lane.is_reused() && !is_fresh => {
                let number = lane.number();
                drop(lane);
                upstream.look_again(number);
                is_fresh = true;
            }
            Ok(Err(cause)) => {
                lane.failed(cause);
                return Err(cause.name());
            }
            Err(_) => {
                lane.failed(LossCause::Timeout);
                return Err(LossCause::Timeout.name());
            }
        }
    }
}

/// Writes a line and reads the one that comes back.
async fn ask(lane: &mut ExclusiveLane<NoMultiplexer>, line: &[u8], lines: &mut Lines) -> Result<Vec<u8>, LossCause> {
    let stream = lane.stream();
    stream.output.append(line);
    stream.output.append(b"\n");
    let mut received = 0;
    let answer = loop {
        match lines.take() {
            Ok(Some(answer)) => break Ok(answer),
            Ok(None) => {}
            Err(_) => break Err(LossCause::Violation),
        }
        match stream.reader.receive().await {
            Ok(Some(chunk)) => {
                received += chunk.len();
                lines.push(&chunk);
            }
            Ok(None) | Err(_) => break Err(LossCause::Closed),
        }
    };
    lane.count_bytes(received, line.len() + 1);
    answer
}

/// A lane to one of the endpoints.
async fn acquire(upstream: &Rc<EchoUpstream>, is_fresh: bool) -> Result<ExclusiveLane<NoMultiplexer>, Refusal> {
    let (mut tried, mut attempts) = (Tried::default(), 1);
    loop {
        let wanted = Wanted { avoid: tried.last(), tried: tried.clone(), is_fresh, ..Wanted::default() };
        let (refusal, number) = match upstream.acquire(wanted).await {
            Ok(lane) => return Ok(lane),
            Err(refused) => refused,
        };
        let Some(number) = number.filter(|_| refusal == Refusal::Unreachable) else { return Err(refusal) };
        let is_another = tried.failed(number, upstream.settings().endpoints.len());
        if !is_another && (attempts >= ATTEMPTS || !upstream.may_retry()) {
            return Err(refusal);
        }
        attempts += 1;
        upstream.goes_elsewhere(number, "connect_failure");
    }
}
