// The main job with the unmodified TypeScript client. Prints one JSON object with what it saw.
import { Letta } from "@letta-ai/letta-client";

const client = new Letta({ baseURL: process.argv[2], apiKey: "local-dev-key" });
const say = (text, instructions) => [
  { role: "user", content: instructions ? `${text} ## ${JSON.stringify(instructions)}` : text },
];
const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
const textOf = (chunks) =>
  chunks.filter((c) => c.message_type === "assistant_message").map((c) => c.content).join("");

const agent = await client.agents.create({
  name: "node",
  model: "openai/double",
  memory_blocks: [{ label: "human", value: "Name: Bob" }],
});
const names = [];
for await (const found of client.agents.list()) names.push(found.name);

const sync = await client.agents.messages.create(agent.id, { messages: say("hi", { text: "Good morning" }) });
const streamed = await collect(
  await client.agents.messages.stream(agent.id, { messages: say("count", { words: 5 }), stream_tokens: true }),
);
const conversation = await client.conversations.create({ agent_id: agent.id });
const inConversation = await collect(
  await client.conversations.messages.create(conversation.id, { messages: say("hey", { text: "Hello" }) }),
);
await client.agents.blocks.update("human", { agent_id: agent.id, value: "Name: Carol" });
const block = await client.agents.blocks.retrieve("human", { agent_id: agent.id });

// The seed's snippet, unchanged in its calls: it sends through `messages.stream`.
const rendered = [];
const stream = await client.conversations.messages.stream(conversation.id, {
  messages: [{ role: "user", content: "Hello!" }],
});
for await (const chunk of stream) {
  if (chunk.message_type === "assistant_message") rendered.push(chunk.content);
}

const listed = [];
for await (const message of client.conversations.messages.list(conversation.id, { limit: 2 })) {
  listed.push(message.id);
}
let error = null;
try {
  await collect(await client.agents.messages.stream(agent.id, { messages: say("x", { status: 429 }) }));
} catch (caught) {
  error = caught.error?.error_type ?? String(caught);
}
console.log(
  JSON.stringify({
    names,
    sync: textOf(sync.messages),
    streamed: streamed.filter((c) => c.message_type === "assistant_message").map((c) => c.content),
    kinds: [...new Set(streamed.map((c) => c.message_type))],
    inConversation: textOf(inConversation),
    block: block.value,
    rendered: rendered.join(""),
    listed,
    error,
  }),
);
