//! The command as a process: what it prints, how it ends, what its child sees.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod agent;
mod alerts;
mod audit;
mod backup;
mod backup_page;
mod bad_input;
mod barrier;
mod cert;
mod command;
mod common;
mod completion;
mod console;
mod console_page;
mod contexts;
mod descendants;
mod dev;
mod doctor;
mod elect_http;
mod groups;
mod health;
mod help;
mod http_locks;
mod identities;
mod import;
mod local;
mod locks;
mod log;
mod loss;
mod machine;
mod members;
mod members_page;
mod nested;
mod outage;
mod packaging;
mod page_machines;
mod progress;
mod quiet;
mod remove;
mod security;
mod sem;
mod server;
mod server_killed;
mod server_paused;
mod service_manager;
mod shells;
mod top;
mod traces;
mod verbs;
mod waiting;
mod work;
mod work_take;
mod zoo_cfg;
