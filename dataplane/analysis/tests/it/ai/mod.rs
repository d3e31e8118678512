mod options;
mod prompts;
mod support;
mod tools;
