"""Model providers: who has which models, and how a chat request becomes a stream of deltas.

`registry` is the way in. Nothing here loads LangChain when imported: the web process lists models
and checks handles only. The two `langchain_*_stream` modules hold the streaming half; providers
name them by dotted path and load them at the first `stream()`, which happens in a worker
(`registry.warm_up`).
"""
