//! A lane on its way to an exchange.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use weir_base::exchange::Refusal;

use crate::{carrier::Multiplexer, exclusive_lane::ExclusiveLane, idle::Remains};

/// A lane; or why there is none, with the number of the endpoint that could not be reached, if one was chosen.
pub type Acquired<M> = Result<ExclusiveLane<M>, (Refusal, Option<usize>)>;

/// A lane on its way. Dropped, it gives up its place in the queue, and a connection that is being made.
pub struct Acquiring<M: Multiplexer>(Stage<M>);

enum Stage<M: Multiplexer> {
    /// Nothing has to be waited for. `None`: it was given away.
    Ready(Option<Acquired<M>>),
    Waiting(Connecting<M>),
}

/// A connection to endpoint number `number` that is waited for.
pub(crate) struct Connecting<M: Multiplexer> {
    pub(crate) number: usize,
    pub(crate) future: Pin<Box<dyn Future<Output = Acquired<M>>>>,
    /// It is being made.
    pub(crate) is_begun: Rc<Cell<bool>>,
}

impl<M: Multiplexer> Acquiring<M> {
    pub(crate) fn ready(acquired: Acquired<M>) -> Self {
        Self(Stage::Ready(Some(acquired)))
    }

    pub(crate) fn waiting(connecting: Connecting<M>) -> Self {
        Self(Stage::Waiting(connecting))
    }

    /// The endpoint that is waited for.
    pub fn number(&self) -> Option<usize> {
        match &self.0 {
            Stage::Ready(_) => None,
            Stage::Waiting(connecting) => Some(connecting.number),
        }
    }
}

impl<M: Multiplexer + 'static> Acquiring<M> {
    /// Gives up waiting. A connection that is being made is completed: whether its endpoint can be reached is of use to
    /// others, and an endpoint that lets connections time out would never be recognised where requests give up before
    /// `connect_timeout`.
    pub fn leave(self) {
        let Stage::Waiting(connecting) = self.0 else { return };
        if connecting.is_begun.get() {
            weir_engine::spawn(async move {
                if let Ok(lane) = connecting.future.await {
                    lane.give_back(Remains::Nothing);
                }
            })
            .detach();
        }
    }
}

impl<M: Multiplexer> Unpin for Acquiring<M> {}

impl<M: Multiplexer> Future for Acquiring<M> {
    type Output = Acquired<M>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Acquired<M>> {
        match &mut self.0 {
            Stage::Ready(acquired) => acquired.take().map_or(Poll::Pending, Poll::Ready),
            Stage::Waiting(connecting) => connecting.future.as_mut().poll(context),
        }
    }
}
