# One image for everything: `serve` (all in one), or `web` and `worker` with REDIS_URL (compose.yaml).
FROM python:3.11-slim AS build
RUN python -m venv /opt/souveraine
ENV PATH=/opt/souveraine/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The requirements first: they change less often than the code, so their layer is reused.
COPY requirements.lock /src/
RUN pip install -r /src/requirements.lock
COPY . /src
RUN pip install --no-deps /src

FROM python:3.11-slim
# git serves the agents' memory to `git clone`; redis-server is for `serve`; libgomp1 is what the
# engine for local models is linked with.
RUN apt-get update \
    && apt-get install -y --no-install-recommends git libgomp1 redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home souveraine \
    && install -d -m 0700 -o souveraine -g souveraine /data
COPY --from=build /opt/souveraine /opt/souveraine
COPY deploy/entrypoint.sh /usr/local/bin/souveraine-entrypoint
ENV PATH=/opt/souveraine/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SOUVERAINE_DATA_DIR=/data \
    SOUVERAINE_HOST=0.0.0.0 \
    SOUVERAINE_PORT=8283
USER souveraine
WORKDIR /data
VOLUME /data
EXPOSE 8283
# SIGTERM lets running turns finish: allow `docker stop` more than SHUTDOWN_TIMEOUT (30 s).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "-m", "souveraine.supervisor.health"]
ENTRYPOINT ["souveraine-entrypoint"]
CMD ["serve"]
