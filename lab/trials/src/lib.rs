//! Trials: the load, the programs that carry it, and the judge, put together.
//!
//! [`knee()`] starts an origin and a gateway on CPUs of their own, asks `weir-knee` for one trial after the other, runs each
//! with `weir-load`, watches what CPU time every party used in exactly the measured window, and hands the figures back
//! until the search is over. [`compare()`] runs the same load on several gateways, interleaved.
//!
//! | file | concept |
//! |---|---|
//! | `budget` | how much CPU a gateway gets: whole CPUs, or a share of one |
//! | [`placement`] | which CPUs the gateway, the origin and the generator get |
//! | [`stage`] | the programs of a measurement: origin, sink, gateways |
//! | `watch` | CPU, descriptors and kernel counters over one window, second by second |
//! | `trial` | one trial: load and watch, as plain figures |
//! | [`course`] | the course of a trial, second by second and thread by thread |
//! | [`together`] | one load from several processes, begun together and merged |
//! | [`mod@knee`] | the search from the first calibration to the last rung |
//! | `fleet` | the arms of a measurement, started once and kept |
//! | [`mod@compare`] | gateways side by side, interleaved |
//! | `program` | a load program of others in the place of the generator |
//! | [`mod@profile`] | where a gateway's time goes under a load |
//! | [`mod@sweep`] | a closed loop at one concurrency after the other, or with one CPU more at a time |
//! | [`swept`], `swept_page` | the file of a sweep; the same as tables: the ladder per protocol, cores to throughput |
//! | [`comparison`] | the file of a comparison, and the ratios in it |
//! | [`mod@file`] | result files: schema first, written whole or not at all |
//! | [`result`](mod@result) | the file of a search, which `weir plan` reads |
//! | [`side_by_side`] | a comparison as a page |
//! | [`report`] | a folder of results as one page: Markdown and HTML |
//! | `loaded` | results of loads as a chapter of it |
//! | `published` | figures of others, in tables of their own |
//! | `document`, `html`, `chart` | elements of a page, and how they are written and drawn |
//! | [`table`] | the rows that people read |
#![forbid(unsafe_code)]

mod budget;
mod chart;
pub mod compare;
pub mod comparison;
pub mod course;
mod document;
pub mod file;
mod fleet;
mod html;
pub mod knee;
mod loaded;
pub mod placement;
pub mod profile;
mod program;
mod published;
pub mod report;
pub mod result;
pub mod side_by_side;
pub mod stage;
pub mod sweep;
pub mod swept;
mod swept_page;
pub mod table;
pub mod together;
mod trial;
mod watch;

pub use budget::{Budget, BudgetError};
pub use compare::compare;
pub use comparison::Comparison;
pub use course::Course;
pub use knee::{Progress, Request, knee};
pub use placement::{NotRun, Placement};
pub use report::Report;
pub use result::KneeResult;
pub use stage::UpstreamKind;
pub use sweep::sweep;
pub use swept::Sweep;
