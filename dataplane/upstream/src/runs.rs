//! Exchanges that wait for their replies, oldest first.
//!
//! The requests that one client pipelines in one loop turn are one *run*: they share their instants and leave in one
//! send, so one entry stands for all of them.

use std::{collections::VecDeque, ops::Range, rc::Rc};

use weir_base::{permit::LocalPermit, time::Time};

use crate::protocol::Timing;

/// A request on its way, or plain ones next to each other: what a session gives, and what comes back with the reply.
pub struct Exchange<W> {
    /// A waiter.
    pub waiter: Rc<W>,
    /// The session's number for the (first) request.
    pub number: u64,
    /// How many requests there are; more than one only if nothing is skipped and all have the deadline.
    pub count: u64,
    /// Replies that the upstream sends before the one to deliver (those of a transaction's inner commands).
    pub skip: u32,
    /// False for blocking commands: the client chose how long they take.
    pub has_deadline: bool,
    /// When its head arrived.
    pub arrived: Time,
    /// Counted as in flight until the end of the reply. On a lane of the client's own it may be missing: those are
    /// bounded by the pool of lanes, and a client that blocks must not keep others from work.
    pub permit: Option<LocalPermit>,
}

/// Consecutive exchanges of one waiter.
pub(crate) struct Run<W> {
    /// The exchanges that are left.
    pub(crate) exchange: Exchange<W>,
    pub(crate) queued: Time,
    /// `None` while the requests wait in the output buffer.
    pub(crate) sent: Option<Time>,
    /// Bytes of the requests, to find them in what was not sent. They hold for a run of which nothing was sent.
    pub(crate) bytes: usize,
}

impl<W> Run<W> {
    pub(crate) fn timing(&self) -> Timing {
        let sent = self.sent.unwrap_or(self.queued);
        Timing { arrived: self.exchange.arrived, queued: self.queued, sent }
    }

    /// The session's numbers of its exchanges.
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.exchange.number..self.exchange.number + self.exchange.count
    }

    /// True if `next` differs from the exchanges of this run in nothing but its number. A request that may take its time
    /// stays alone: its deadline may be set later.
    #[inline]
    fn continues_with(&self, next: &Exchange<W>, queued: Time) -> bool {
        let last = &self.exchange;
        Rc::ptr_eq(&last.waiter, &next.waiter)
            && self.sent.is_none()
            && self.queued == queued
            && last.arrived == next.arrived
            && last.number + last.count == next.number
            && (last.has_deadline && next.has_deadline)
            && (last.skip | next.skip) == 0
            && last.permit.is_some() == next.permit.is_some()
    }

    fn take_in(&mut self, next: Exchange<W>, bytes: usize) {
        self.exchange.count += next.count;
        self.bytes += bytes;
        if let (Some(all), Some(more)) = (&mut self.exchange.permit, next.permit) {
            all.merge(more);
        }
    }
}

/// Runs of exchanges, oldest first.
pub(crate) struct Runs<W> {
    runs: VecDeque<Run<W>>,
    /// Exchanges in all runs.
    count: usize,
}

impl<W> Default for Runs<W> {
    fn default() -> Self {
        Self { runs: VecDeque::new(), count: 0 }
    }
}

impl<W> Runs<W> {
    /// Exchanges, not runs.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Puts a request, or requests, of `bytes` bytes behind the others.
    #[inline]
    pub(crate) fn push(&mut self, exchange: Exchange<W>, queued: Time, bytes: usize) {
        self.count += exchange.count as usize;
        match self.runs.back_mut() {
            Some(last) if last.continues_with(&exchange, queued) => last.take_in(exchange, bytes),
            _ => self.runs.push_back(Run { exchange, queued, sent: None, bytes }),
        }
    }

    pub(crate) fn push_run(&mut self, run: Run<W>) {
        self.count += run.exchange.count as usize;
        self.runs.push_back(run);
    }

    pub(crate) fn pop_run(&mut self) -> Option<Run<W>> {
        let run = self.runs.pop_front()?;
        self.count -= run.exchange.count as usize;
        Some(run)
    }

    /// Puts all of `others` behind these.
    pub(crate) fn append(&mut self, others: &mut Self) {
        self.count += std::mem::take(&mut others.count);
        self.runs.append(&mut others.runs);
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Run<W>> {
        self.runs.front()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut Run<W>> {
        self.runs.front_mut()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut Run<W>> {
        self.runs.back_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Run<W>> {
        self.runs.iter()
    }

    /// Takes the runs of `client` out of which nothing was sent; and where among the bytes of all such runs theirs are.
    pub(crate) fn take_back(&mut self, client: &W) -> (Vec<Run<W>>, Vec<Range<usize>>) {
        let (mut taken, mut ranges, mut end) = (Vec::new(), Vec::new(), 0);
        // Sent requests stand in front of unsent ones.
        let first = self.runs.partition_point(|run| run.sent.is_some());
        for run in self.runs.split_off(first) {
            let start = end;
            end += run.bytes;
            if std::ptr::eq(Rc::as_ptr(&run.exchange.waiter), client) {
                self.count -= run.exchange.count as usize;
                taken.push(run);
                ranges.push(start..end);
            } else {
                self.runs.push_back(run);
            }
        }
        (taken, ranges)
    }

    /// Everything that waits has been handed to the kernel.
    pub(crate) fn stamp_sent(&mut self, now: Time) {
        // Sent requests stand in front of unsent ones.
        self.runs.iter_mut().rev().take_while(|run| run.sent.is_none()).for_each(|run| run.sent = Some(now));
    }

    /// The replies to the oldest `count` exchanges, all of the first run, are complete. Gives who waited for them.
    #[inline]
    pub(crate) fn complete(&mut self, count: u64) -> Option<Rc<W>> {
        let oldest = &mut self.runs.front_mut()?.exchange;
        if oldest.count < count {
            return None;
        }
        self.count -= count as usize;
        if oldest.count == count {
            return self.runs.pop_front().map(|run| run.exchange.waiter);
        }
        oldest.count -= count;
        oldest.number += count;
        if let Some(permit) = &mut oldest.permit {
            permit.give_back(count);
        }
        Some(oldest.waiter.clone())
    }
}

#[cfg(test)]
mod tests {
    use weir_base::permit::LocalBudget;

    use super::*;

    fn exchange(waiter: &Rc<u8>, number: u64, budget: &LocalBudget) -> Exchange<u8> {
        let permit = budget.try_acquire();
        Exchange { waiter: waiter.clone(), number, count: 1, skip: 0, has_deadline: true, arrived: Time::ZERO, permit }
    }

    /// The numbers of each run.
    fn shape(runs: &Runs<u8>) -> Vec<std::ops::Range<u64>> {
        runs.iter().map(Run::numbers).collect()
    }

    #[test]
    fn neighbours_of_one_client_are_one_run() {
        let (one, other, budget) = (Rc::new(1), Rc::new(2), LocalBudget::new(10));
        let mut runs = Runs::default();
        for (waiter, number) in [(&one, 0), (&one, 1), (&other, 0), (&one, 2)] {
            runs.push(exchange(waiter, number, &budget), Time::ZERO, 7);
        }
        assert_eq!(shape(&runs), [0..2, 0..1, 2..3]);
        assert_eq!((runs.len(), budget.in_use()), (4, 4));
        assert_eq!(runs.front().map(|run| run.bytes), Some(14));
    }

    #[test]
    fn different_exchanges_are_runs_of_their_own() {
        let (one, budget) = (Rc::new(1), LocalBudget::new(10));
        let changes: [fn(&mut Exchange<u8>); 5] = [
            |exchange| exchange.skip = 1,
            |exchange| exchange.has_deadline = false,
            |exchange| exchange.arrived = Time::from_nanos(1),
            |exchange| exchange.number = 5,
            |exchange| exchange.permit = None,
        ];
        for change in changes {
            let mut runs = Runs::default();
            runs.push(exchange(&one, 0, &budget), Time::ZERO, 1);
            let mut second = exchange(&one, 1, &budget);
            change(&mut second);
            runs.push(second, Time::ZERO, 1);
            assert_eq!(runs.iter().count(), 2);
        }
        let mut runs = Runs::default();
        runs.push(exchange(&one, 0, &budget), Time::ZERO, 1);
        runs.push(exchange(&one, 1, &budget), Time::from_nanos(1), 1);
        runs.stamp_sent(Time::from_nanos(2));
        runs.push(exchange(&one, 2, &budget), Time::from_nanos(1), 1);
        assert_eq!(shape(&runs), [0..1, 1..2, 2..3]);
        assert_eq!(runs.iter().filter(|run| run.sent.is_some()).count(), 2);
        drop(runs);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn unsent_requests_of_a_client_are_taken_back_and_nothing_else() {
        let (one, other, budget) = (Rc::new(1), Rc::new(2), LocalBudget::new(10));
        let mut runs = Runs::default();
        runs.push(exchange(&one, 0, &budget), Time::ZERO, 4);
        runs.stamp_sent(Time::from_nanos(1));
        for (waiter, number) in [(&other, 0), (&one, 1), (&one, 2), (&other, 1)] {
            runs.push(exchange(waiter, number, &budget), Time::ZERO, 1);
        }
        let (taken, ranges) = runs.take_back(&one);
        assert_eq!(taken.iter().flat_map(Run::numbers).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((shape(&runs), runs.len()), (vec![0..1, 0..1, 1..2], 3));
        assert_eq!((ranges.len(), ranges[0].clone()), (1, 1..3));
        drop(taken);
        assert_eq!(budget.in_use(), 3);
    }

    #[test]
    fn permits_come_back_with_each_reply() {
        let (one, budget) = (Rc::new(1), LocalBudget::new(10));
        let mut runs = Runs::default();
        (0..5).for_each(|number| runs.push(exchange(&one, number, &budget), Time::ZERO, 1));
        assert!(runs.complete(2).is_some());
        assert_eq!((runs.front().map(Run::numbers), runs.len(), budget.in_use()), (Some(2..5), 3, 3));
        assert!(runs.complete(4).is_none(), "more replies than requests");
        assert!(runs.complete(3).is_some());
        assert_eq!((runs.len(), runs.is_empty(), budget.in_use(), Rc::strong_count(&one)), (0, true, 0, 1));
    }
}
