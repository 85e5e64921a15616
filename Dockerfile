FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY migrations ./migrations
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim
RUN useradd --system --create-home cronledger
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels cronledger && rm -rf /wheels
USER cronledger
WORKDIR /home/cronledger
# exec form: SIGTERM reaches the replica, which drains.
ENTRYPOINT ["cronledger"]
CMD ["run"]
