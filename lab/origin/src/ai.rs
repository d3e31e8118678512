//! A provider of language models that has none: an OpenAI and Anthropic origin whose replies follow from the request.
//!
//! Every reply says by its text which request it belongs to, every token that it bills stands in a ledger, and every fault
//! that a provider can have is chosen by the request, so one origin serves all tests.
//!
//! | path, with and without `/v1`, or behind `/openai/deployments/MODEL` | reply |
//! |---|---|
//! | POST `/chat/completions`, `/completions`, `/responses` | whole, or as events |
//! | POST `/messages`, `/messages/count_tokens` | the same in Anthropic's form |
//! | POST `/embeddings` | floats or base64 |
//! | GET `/models`, `/models/ID` | a short list; a model whose name begins with `no-such` exists nowhere |
//! | GET `/ledger`, DELETE `/ledger` | the billed tokens of each request; see [`Ledger`] |
//! | GET `/requests`, `/health` | how many requests were served, and that it serves |
//!
//! ```no_run
//! use weir_origin::ai::{AiOriginSettings, start};
//!
//! let origin = start(AiOriginSettings::default())?; // one worker, 127.0.0.1, any free port
//! println!("OPENAI_BASE_URL=http://{}/v1", origin.addresses()[0]);
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A request chooses its reply by the words of [`directive`], such as `[weir bytes=65536 events=64]` in the prompt, which every
//! gateway forwards, in `metadata.weir`, or in the header `x-weir-lab`.
//!
//! | file | concept |
//! |---|---|
//! | `settings`, `server`, `connection` | options; workers; one connection: requests in, replies out |
//! | `route`, `request`, `directive` | from a request to its endpoint, its fields and its directives |
//! | `model_response`, `respond`, `reply` | the parts that the dialects share; the dialect of an endpoint; a reply before it is written |
//! | `chat`, `completions`, `responses`, `messages`, `embeddings`, `models` | the replies of one endpoint each |
//! | `text`, `json`, `schema`, `tools` | contents: text by position, escapes, a value for a schema, calls |
//! | `usage`, `ledger` | tokens as reported, and as billed |
//! | `error`, `fault`, `framing`, `stream` | refusals; what goes wrong; the bytes of events; events at their pace |

mod chat;
mod completions;
mod connection;
pub mod directive;
mod embeddings;
mod error;
mod fault;
mod framing;
mod json;
pub mod ledger;
mod messages;
mod model_response;
mod models;
mod reply;
mod request;
mod respond;
mod responses;
mod route;
mod schema;
mod server;
mod settings;
mod stream;
pub mod text;
mod tools;
mod usage;

pub use crate::server::{Origin, OriginStats};
pub use ledger::Ledger;
pub use server::{start, start_with};
pub use settings::{AiOriginSettings, CONNECTIONS_MAX, REQUEST_BYTES_MAX};
