//! Statements that some server has taken, for all workers of the process.
//!
//! A client whose Parse waits for a server may be one of a program that goes on with its other clients only behind the reply, as pgbench
//! does, while these have all servers in their transactions. Such a Parse needs no server if another one has taken the text. The workers
//! share this knowledge: the client that was first may be on another one.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::statements::Statement;
use crate::variables::Variables;

/// Statements that are remembered, by two hashes each. Default 65,536: about 2 MiB. Beyond it all are forgotten.
const PROOFS_MAX: usize = 65_536;

/// See above. A statement is known by its text and types, the pool of the server and the parameters that it had.
#[derive(Debug, Default)]
pub struct Proofs {
    /// Two keys of 128 bits: no client finds another text with the same hashes.
    hashes: [RandomState; 2],
    known: Mutex<HashSet<[u64; 2]>>,
}

impl Proofs {
    fn key(&self, statement: &Statement, pool: &str, variables: &Variables) -> [u64; 2] {
        let of = (statement.rest(), pool, variables);
        [self.hashes[0].hash_one(of), self.hashes[1].hash_one(of)]
    }

    /// A server of `pool` with these parameters has taken the statement.
    pub(crate) fn note(&self, statement: &Statement, pool: &str, variables: &Variables) {
        let key = self.key(statement, pool, variables);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PROOFS_MAX {
            known.clear();
        }
        known.insert(key);
    }

    /// See [`Proofs::note`].
    pub(crate) fn has(&self, statement: &Statement, pool: &str, variables: &Variables) -> bool {
        let key = self.key(statement, pool, variables);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::WorkerShare;

    #[test]
    fn a_statement_is_known_by_text_pool_and_parameters_on_each_worker() {
        let (one, two, proofs) = (WorkerShare::new(), WorkerShare::new(), Proofs::default());
        let text = b"select $1\0\0\0";
        let german = Variables::from_startup([(&b"lc_messages"[..], &b"de_DE"[..])]);
        let none = Variables::default();
        proofs.note(&one.statement(text), "main app@shop", &none);
        assert!(proofs.has(&two.statement(text), "main app@shop", &none));
        assert!(!proofs.has(&two.statement(text), "main web@shop", &none));
        assert!(!proofs.has(&two.statement(text), "main app@shop", &german));
        assert!(!proofs.has(&two.statement(b"select $2\0\0\0"), "main app@shop", &none));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (share, proofs) = (WorkerShare::new(), Proofs::default());
        let statement = share.statement(b"select 1\0\0\0");
        for number in 0..=PROOFS_MAX {
            proofs.note(&statement, &number.to_string(), &Variables::default());
        }
        assert_eq!(proofs.known.lock().expect("no panic").len(), 1);
    }
}
