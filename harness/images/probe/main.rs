//! Program of the probe image: runs until it is killed, or returns one fact about the container that it runs in.
//!
//! Invariant: standard library only, so that one call of `rustc` builds the program. No shell is needed to run it. `probe`
//! without arguments waits until it is killed, so the image is usable for any Pod.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    // If the program is started as `cat` or `printenv`, the name is the command.
    let name = words.first().and_then(|it| it.rsplit('/').next());
    match (name, words.first_mut()) {
        (Some(name @ ("cat" | "printenv")), Some(first)) => *first = name,
        (_, Some(_)) => drop(words.remove(0)),
        (_, None) => {}
    }
    let done = match words.as_slice() {
        [] => loop {
            std::thread::park();
        },
        ["exit", code] => return code.parse::<u8>().map_or(ExitCode::FAILURE, ExitCode::from),
        ["env" | "printenv", name] => variable(name),
        ["cat", file] => cat(file),
        ["resolve", name] => resolve(name),
        ["http"] => serve(),
        _ => Err(format!("{USAGE}, not {words:?}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), String>;

fn variable(name: &str) -> Done {
    let value = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
    println!("{value}");
    Ok(())
}

fn cat(file: &str) -> Done {
    let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    std::io::stdout()
        .write_all(&bytes)
        .map_err(|error| error.to_string())
}

fn resolve(name: &str) -> Done {
    let addresses = (name, 0)
        .to_socket_addrs()
        .map_err(|error| format!("{name}: {error}"))?;
    addresses.for_each(|address| println!("{}", address.ip()));
    Ok(())
}

/// Responds 200 to every connection on port 8080, one connection after the other.
fn serve() -> Done {
    let listener = TcpListener::bind("0.0.0.0:8080").map_err(|error| format!("8080: {error}"))?;
    for stream in listener.incoming().flatten() {
        // The client may close the connection early; this is not an error.
        let _ = answer(stream);
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n")
}

const USAGE: &str = "probe [exit N | env NAME | cat FILE | resolve NAME | http]";
