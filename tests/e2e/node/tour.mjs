// One visit to each resource with the unmodified TypeScript client. Prints the methods that worked, and what failed.
import { Letta, toFile } from "@letta-ai/letta-client";

const client = new Letta({ baseURL: process.argv[2], apiKey: "local-dev-key" });
const done = [];
const failed = {};
const call = async (name, act) => {
  try {
    const answer = await act();
    done.push(name);
    return answer;
  } catch (error) {
    failed[name] = String(error).slice(0, 300);
    return {};
  }
};
const all = async (pages) => {
  const found = [];
  for await (const row of pages) found.push(row);
  return found;
};
const source = 'def roll_tour(sides: int) -> int:\n    """Roll.\n\n    Args:\n        sides: how many\n    """\n    return sides\n';

const agent = await call("agents.create", () =>
  client.agents.create({ name: "tour", model: "openai/double", tags: ["tour"], memory_blocks: [{ label: "human", value: "Name: Bob" }] }),
);
const of = { agent_id: agent.id };
await call("agents.list", () => all(client.agents.list({ tags: ["tour"] })));
await call("agents.retrieve", () => client.agents.retrieve(agent.id, { include: ["agent.blocks"] }));
await call("agents.update", () => client.agents.update(agent.id, { description: "on tour" }));
await call("agents.recompile", () => client.agents.recompile(agent.id));
await call("agents.messages.create", () => client.agents.messages.create(agent.id, { input: "hello tour" }));
const messages = await call("agents.messages.list", () => all(client.agents.messages.list(agent.id)));
await call("messages.list", () => client.messages.list());
await call("messages.retrieve", () => client.messages.retrieve(messages[0].id));
await call("messages.search", () => client.messages.search({ query: "hello tour" }));

const block = await call("blocks.create", () => client.blocks.create({ label: "tour", value: "x" }));
await call("blocks.list", () => all(client.blocks.list({ label: "tour" })));
await call("blocks.retrieve", () => client.blocks.retrieve(block.id));
await call("blocks.update", () => client.blocks.update(block.id, { value: "y" }));
await call("agents.blocks.attach", () => client.agents.blocks.attach(block.id, of));
await call("agents.blocks.list", () => all(client.agents.blocks.list(agent.id)));
await call("blocks.agents.list", () => all(client.blocks.agents.list(block.id)));
await call("agents.blocks.detach", () => client.agents.blocks.detach(block.id, of));
await call("blocks.delete", () => client.blocks.delete(block.id));

const tool = await call("tools.create", () => client.tools.create({ source_code: source }));
await call("tools.upsert", () => client.tools.upsert({ source_code: source }));
await call("tools.list", () => all(client.tools.list({ name: "roll_tour" })));
await call("tools.retrieve", () => client.tools.retrieve(tool.id));
await call("tools.update", () => client.tools.update(tool.id, { tags: ["tour"] }));
await call("tools.search", () => client.tools.search({ query: "roll" }));
await call("agents.tools.attach", () => client.agents.tools.attach(tool.id, of));
await call("agents.tools.updateApproval", () =>
  client.agents.tools.updateApproval("roll_tour", { agent_id: agent.id, body_requires_approval: true }),
);
await call("agents.tools.list", () => all(client.agents.tools.list(agent.id)));
await call("agents.tools.detach", () => client.agents.tools.detach(tool.id, of));
await call("agents.tools.run", () => client.agents.tools.run("conversation_search", { agent_id: agent.id, args: { query: "hello" } }));
await call("tools.delete", () => client.tools.delete(tool.id));

const archive = await call("archives.create", () => client.archives.create({ name: "tour" }));
await call("archives.list", () => all(client.archives.list()));
await call("archives.retrieve", () => client.archives.retrieve(archive.id));
await call("archives.update", () => client.archives.update(archive.id, { description: "of the tour" }));
const passage = await call("archives.passages.create", () => client.archives.passages.create(archive.id, { text: "Roses in March." }));
await call("archives.passages.createMany", () =>
  client.archives.passages.createMany(archive.id, { passages: [{ text: "Tulips in April." }] }),
);
await call("agents.archives.attach", () => client.agents.archives.attach(archive.id, of));
await call("passages.search", () => client.passages.search({ query: "roses" }));
await call("agents.passages.create", () => client.agents.passages.create(agent.id, { text: "Lilies in May." }));
await call("agents.passages.list", () => client.agents.passages.list(agent.id));
await call("agents.passages.search", () => client.agents.passages.search(agent.id, { query: "lilies" }));
await call("archives.passages.delete", () => client.archives.passages.delete(passage.id, { archive_id: archive.id }));
await call("agents.archives.detach", () => client.agents.archives.detach(archive.id, of));
await call("archives.delete", () => client.archives.delete(archive.id));

const folder = await call("folders.create", () => client.folders.create({ name: "tour" }));
await call("folders.list", () => all(client.folders.list()));
await call("folders.retrieve", () => client.folders.retrieve(folder.id));
await call("folders.update", () => client.folders.update(folder.id, { description: "of the tour" }));
const file = await call("folders.files.upload", async () =>
  client.folders.files.upload(folder.id, { file: await toFile(Buffer.from("# Plan\nRoses."), "plan.md") }),
);
await call("folders.files.list", () => all(client.folders.files.list(folder.id)));
await call("agents.folders.attach", () => client.agents.folders.attach(folder.id, of));
await call("agents.folders.list", () => all(client.agents.folders.list(agent.id)));
await call("agents.files.list", () => all(client.agents.files.list(agent.id)));
await call("agents.files.closeAll", () => client.agents.files.closeAll(agent.id));
await call("folders.agents.list", () => client.folders.agents.list(folder.id));
await call("agents.folders.detach", () => client.agents.folders.detach(folder.id, of));
await call("folders.files.delete", () => client.folders.files.delete(file.id, { folder_id: folder.id }));
await call("folders.delete", () => client.folders.delete(folder.id));

const conversation = await call("conversations.create", () => client.conversations.create(of));
await call("conversations.messages.create", async () =>
  all(await client.conversations.messages.create(conversation.id, { messages: [{ role: "user", content: "hi" }] })),
);
await call("conversations.list", () => client.conversations.list(of));
await call("conversations.retrieve", () => client.conversations.retrieve(conversation.id));
await call("conversations.update", () => client.conversations.update(conversation.id, { summary: "tour" }));
await call("conversations.fork", () => client.conversations.fork(conversation.id));
await call("conversations.recompile", () => client.conversations.recompile(conversation.id, of));
await call("conversations.messages.list", () => all(client.conversations.messages.list(conversation.id)));
await call("conversations.delete", () => client.conversations.delete(conversation.id));

const runs = await call("runs.list", () => all(client.runs.list(of)));
await call("runs.retrieve", () => client.runs.retrieve(runs[0].id));
await call("runs.messages.list", () => all(client.runs.messages.list(runs[0].id)));
await call("runs.steps.list", () => all(client.runs.steps.list(runs[0].id)));
await call("runs.usage.retrieve", () => client.runs.usage.retrieve(runs[0].id));
await call("runs.trace.retrieve", () => client.runs.trace.retrieve(runs[0].id));
await call("runs.messages.stream", async () => all(await client.runs.messages.stream(runs[0].id, { starting_after: 0 })));
const steps = await call("steps.list", () => all(client.steps.list(of)));
await call("steps.retrieve", () => client.steps.retrieve(steps[0].id));
await call("steps.messages.list", () => all(client.steps.messages.list(steps[0].id)));
await call("steps.metrics.retrieve", () => client.steps.metrics.retrieve(steps[0].id));
await call("steps.trace.retrieve", () => client.steps.trace.retrieve(steps[0].id));
await call("steps.feedback.create", () => client.steps.feedback.create(steps[0].id, { feedback: "positive" }));

const later = Date.now() + 86_400_000;
const scheduled = await call("agents.schedule.create", () =>
  client.agents.schedule.create(agent.id, { messages: [{ role: "user", content: "later" }], schedule: { type: "one-time", scheduled_at: later } }),
);
await call("agents.schedule.list", () => client.agents.schedule.list(agent.id));
await call("agents.schedule.retrieve", () => client.agents.schedule.retrieve(scheduled.id, of));
await call("agents.schedule.delete", () => client.agents.schedule.delete(scheduled.id, of));

const server = await call("mcpServers.create", () =>
  client.mcpServers.create({ server_name: "tour", config: { mcp_server_type: "streamable_http", server_url: "http://127.0.0.1:9/mcp" } }),
);
await call("mcpServers.list", () => client.mcpServers.list());
await call("mcpServers.retrieve", () => client.mcpServers.retrieve(server.id));
await call("mcpServers.delete", () => client.mcpServers.delete(server.id));

await call("models.list", () => client.models.list());
await call("models.embeddings.list", () => client.models.embeddings.list());
await call("tags.list", () => client.tags.list());
await call("health", () => client.health());
const exported = await call("agents.exportFile", () => client.agents.exportFile(agent.id));
await call("agents.importFile", async () =>
  client.agents.importFile({ file: await toFile(Buffer.from(typeof exported === "string" ? exported : JSON.stringify(exported)), "tour.af") }),
);
await call("agents.messages.reset", () => client.agents.messages.reset(agent.id));
await call("agents.delete", () => client.agents.delete(agent.id));

console.log(JSON.stringify({ done, failed }));
