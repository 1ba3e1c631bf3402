//! A to-do list: a JSON API that stores its items with SQLite in `todo.db`.
//!
//! ```text
//! cargo run -p selvedge-examples --bin todo
//! curl -X POST -H 'content-type: application/json' -d '{"text": "mow"}' http://127.0.0.1:3000/todos
//! curl http://127.0.0.1:3000/todos
//! ```
//!
//! SQLite blocks on the disk, so each handler runs its query on a blocking thread ([`spawn_blocking`]). On the worker, it
//! would block all other connections of that worker.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use rusqlite::Connection;
use selvedge::spawn_blocking;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Serialize, Deserialize)]
struct Todo {
    id: i64,
    text: String,
    done: bool,
}

#[derive(Deserialize)]
struct New {
    text: String,
}

#[derive(Deserialize)]
struct Change {
    done: bool,
}

/// The database, which runs one operation at a time.
#[derive(Clone)]
struct Store(Arc<Mutex<Connection>>);

impl Store {
    fn new(connection: Connection) -> rusqlite::Result<Self> {
        connection.execute(
            "CREATE TABLE IF NOT EXISTS todos (id INTEGER PRIMARY KEY, text TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0)",
            (),
        )?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Runs an operation with the database on a blocking thread.
    async fn with_database<T: Send + 'static>(
        self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StatusCode> {
        let done = spawn_blocking(move || work(&self.0.lock().unwrap_or_else(PoisonError::into_inner))).await;
        match done {
            Some(Ok(found)) => Ok(found),
            Some(Err(rusqlite::Error::QueryReturnedNoRows)) => Err(StatusCode::NOT_FOUND),
            Some(Err(_)) | None => Err(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

fn todo(row: &rusqlite::Row<'_>) -> rusqlite::Result<Todo> {
    Ok(Todo { id: row.get(0)?, text: row.get(1)?, done: row.get(2)? })
}

async fn list(State(store): State<Store>) -> Result<Json<Vec<Todo>>, StatusCode> {
    let all = store.with_database(|database| {
        database.prepare("SELECT id, text, done FROM todos ORDER BY id")?.query_map((), todo)?.collect()
    });
    Ok(Json(all.await?))
}

async fn add(State(store): State<Store>, Json(new): Json<New>) -> Result<(StatusCode, Json<Todo>), StatusCode> {
    let added = store.with_database(move |database| {
        database.query_row("INSERT INTO todos (text) VALUES (?1) RETURNING id, text, done", [new.text], todo)
    });
    Ok((StatusCode::CREATED, Json(added.await?)))
}

async fn change(
    State(store): State<Store>,
    Path(id): Path<i64>,
    Json(change): Json<Change>,
) -> Result<Json<Todo>, StatusCode> {
    let changed = store.with_database(move |database| {
        database.query_row("UPDATE todos SET done = ?2 WHERE id = ?1 RETURNING id, text, done", (id, change.done), todo)
    });
    Ok(Json(changed.await?))
}

async fn remove(State(store): State<Store>, Path(id): Path<i64>) -> Result<StatusCode, StatusCode> {
    match store.with_database(move |database| database.execute("DELETE FROM todos WHERE id = ?1", [id])).await? {
        0 => Err(StatusCode::NOT_FOUND),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

fn app(store: Store) -> Router {
    Router::new()
        .route("/todos", get(list).post(add))
        .route("/todos/{id}", put(change).delete(remove))
        .with_state(store)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new(Connection::open("todo.db")?)?;
    let listener = tokio::net::TcpListener::bind(selvedge_examples::address()).await?;
    Ok(selvedge::serve(listener, app(store)).await?)
}

#[test]
fn items_are_added_changed_and_removed() {
    let store = Connection::open_in_memory().and_then(Store::new).expect("cannot open a database in memory");
    let running = selvedge_examples::client::serve(app(store));
    let mut client = selvedge_examples::client::Client::connect(running.addresses()[0]);
    let json = "content-type: application/json\r\n";
    let added = client.request("POST /todos", json, r#"{"text": "mow"}"#);
    assert_eq!((added.status, added.text()), (201, r#"{"id":1,"text":"mow","done":false}"#));
    assert_eq!(client.request("PUT /todos/1", json, r#"{"done": true}"#).status, 200);
    assert_eq!(client.get("/todos").text(), r#"[{"id":1,"text":"mow","done":true}]"#);
    assert_eq!(client.request("PUT /todos/2", json, r#"{"done": true}"#).status, 404);
    assert_eq!(client.request("DELETE /todos/1", "", "").status, 204);
    assert_eq!(client.get("/todos").text(), "[]");
}
