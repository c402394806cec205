// What a program on pulsar-flex does: each command prints a line for each thing that it saw.
'use strict';

const { Consumer, Producer, logLevel } = require('pulsar-flex');

const [url, command, topic, count, how] = process.argv.slice(2);
const messages = Number(count);
const where = { topic, discoveryServers: [url.replace('pulsar://', '')], logLevel: logLevel.ERROR };
const say = (...seen) => console.log('>', ...seen);

const produce = async () => {
  const producer = new Producer({ ...where, producerAccessMode: Producer.ACCESS_MODES.SHARED });
  await producer.create();
  const all = Array.from({ length: messages }, (_, number) => ({
    payload: String(number),
    properties: { number: String(number) },
  }));
  if (how === 'batches') {
    await producer.sendBatch({ messages: all });
  } else {
    for (const message of all) await producer.sendMessage(message);
  }
  await producer.close();
  say('sent', messages);
};

// Refuses each message once and acknowledges it when it comes again.
const consume = async () => {
  const consumer = new Consumer({
    ...where,
    subscription: 'js',
    subType: Consumer.SUB_TYPES[how.toUpperCase()],
    consumerName: 'js',
  });
  await consumer.subscribe();
  let acknowledged = 0;
  await new Promise((resolve, reject) => {
    consumer
      .run({
        autoAck: false,
        onMessage: async ({ ack, message, properties, redeliveryCount }) => {
          if (redeliveryCount === 0) {
            await ack({ type: Consumer.ACK_TYPES.NEGATIVE });
            return;
          }
          await ack();
          say(message.toString(), properties.number, redeliveryCount);
          acknowledged += 1;
          if (acknowledged === messages) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.unsubscribe();
};

({ produce, consume })
  [command]()
  .then(() => process.exit(0))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
