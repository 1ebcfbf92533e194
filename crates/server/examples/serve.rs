//! A server in a process of its own, until Ctrl-C:
//! `cargo run --release -p baton-locks-server --example serve -- [FOLDER]`. Without a folder the
//! state is in memory only.

use baton_server::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let builder = Server::builder().listen("127.0.0.1:0");
    let builder = match std::env::args_os().nth(1) {
        Some(folder) => builder.data_dir(folder),
        None => builder.in_memory(),
    };
    let server = builder.start().await?;
    println!("{}", server.connect_string());
    tokio::select! {
        error = server.failed() => return Err(error.into()),
        _ = tokio::signal::ctrl_c() => {}
    }
    server.shutdown().await?;
    Ok(())
}
