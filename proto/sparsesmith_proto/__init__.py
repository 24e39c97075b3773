"""The wire contract of sparsesmith: closed, frozen messages. Depends on pydantic and the standard library alone.

One file per hop: `api` (client <-> generator), `evaluation` (generator <-> evaluator), `reward` (evaluator -> trainer),
`policy` (trainer -> generator); `kernel` and `message` hold the nouns they share,
`words` what a user chooses among.
"""
