//! What a program on the crate `pulsar` does: each command prints a line for each thing that it saw.

use std::{collections::HashSet, env, time::Duration};

use futures::{StreamExt, TryStreamExt};
use pulsar::{
    compression::Compression,
    consumer::{ConsumerOptions, InitialPosition},
    producer, Consumer, Error, ProducerOptions, Pulsar, SubType, TokioExecutor,
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().collect();
    let client: Pulsar<_> = Pulsar::builder(&arguments[1], TokioExecutor).build().await?;
    let (command, topic) = (arguments[2].as_str(), arguments[3].as_str());
    let messages: usize = arguments[4].parse().expect("a number of messages");
    match command {
        "produce" => produce(&client, topic, messages, arguments[5] == "batches").await,
        "consume" => consume(&client, topic, messages, &arguments[5]).await,
        "read" => read(&client, topic, messages).await,
        _ => panic!("{command}: no such command"),
    }
}

/// Sends so many messages with keys and properties, in batches or one by one.
async fn produce(client: &Pulsar<TokioExecutor>, topic: &str, messages: usize, batches: bool) -> Result<(), Error> {
    let mut producer = client
        .producer()
        .with_topic(topic)
        .with_options(ProducerOptions {
            batch_size: batches.then_some(10),
            compression: Some(Compression::Snappy(Default::default())),
            ..Default::default()
        })
        .build()
        .await?;
    let mut receipts = Vec::new();
    for number in 0..messages {
        let message = producer::Message {
            payload: number.to_string().into_bytes(),
            partition_key: Some(format!("key-{}", number % 3)),
            properties: [("number".to_string(), number.to_string())].into(),
            ..Default::default()
        };
        receipts.push(producer.send_non_blocking(message).await?);
    }
    if batches {
        producer.send_batch().await?;
    }
    for receipt in receipts {
        receipt.await?;
    }
    println!("> sent {messages}");
    Ok(())
}

/// Refuses each message once and acknowledges it when it comes again.
async fn consume(client: &Pulsar<TokioExecutor>, topic: &str, messages: usize, kind: &str) -> Result<(), Error> {
    let kind = match kind {
        "Exclusive" => SubType::Exclusive,
        "Shared" => SubType::Shared,
        "Failover" => SubType::Failover,
        _ => SubType::KeyShared,
    };
    let mut consumer: Consumer<Vec<u8>, _> = client
        .consumer()
        .with_topic(topic)
        .with_subscription("rust")
        .with_subscription_type(kind)
        .with_options(ConsumerOptions {
            initial_position: InitialPosition::Earliest,
            ..Default::default()
        })
        .build()
        .await?;
    let mut refused = HashSet::new();
    let mut acknowledged = 0;
    while acknowledged < messages {
        let message = timeout(PATIENCE, consumer.try_next()).await.expect("a message in time")?.expect("a message");
        let text = String::from_utf8_lossy(&message.payload.data).into_owned();
        if refused.insert(text.clone()) {
            consumer.nack(&message).await?;
            continue;
        }
        consumer.ack(&message).await?;
        acknowledged += 1;
        let metadata = message.metadata();
        let number = &metadata.properties.iter().find(|each| each.key == "number").expect("a number").value;
        println!("> {text} {} {number}", message.key().unwrap_or_default());
    }
    consumer.close().await
}

async fn read(client: &Pulsar<TokioExecutor>, topic: &str, messages: usize) -> Result<(), Error> {
    let mut reader = client
        .reader()
        .with_topic(topic)
        .with_options(ConsumerOptions {
            initial_position: InitialPosition::Earliest,
            ..Default::default()
        })
        .into_reader::<Vec<u8>>()
        .await?;
    for _ in 0..messages {
        let message = timeout(PATIENCE, reader.next()).await.expect("a message in time").expect("a message")?;
        println!("> {}", String::from_utf8_lossy(&message.payload.data));
    }
    Ok(())
}
