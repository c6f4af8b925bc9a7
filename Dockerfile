# A runtime in a container; docs/operating.md says how to run it.
FROM python:3.13-slim

COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY arcp_trio /src/arcp_trio
RUN pip install --no-cache-dir "/src[jwt,postgres,sealed]" && rm -r /src

# Agents go into /app, where modules are looked up; /app/.arcp has the store, the token, the address.
RUN useradd --system --user-group --uid 10001 arcp && install -d -o arcp -g arcp -m 0700 /app/.arcp
WORKDIR /app
USER arcp
VOLUME /app/.arcp

EXPOSE 7777
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7777/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
# --insecure: the container's network reaches the port; publish it on loopback, or behind a proxy with TLS.
ENTRYPOINT ["arcp-trio", "serve", "--host=0.0.0.0", "--insecure"]
