"""Every marked line is an error to both checkers, and no other line is."""

from holdfast import Continue, Group, Holdfast, Job

app = Holdfast()


@app.job("count")
async def count(job: Job[None]) -> int:
    return 1


@app.job("name")
async def name(job: Job[None]) -> str | Continue[str]:
    return Continue(count.new())  # rejected


@app.job("names")
async def names(job: Job[None]) -> str | Continue[str]:
    return Continue(Group([count.new()], then=count.new()))  # rejected


Continue(count)  # rejected
Continue(Group([count], then=count.new()))  # rejected
Group([count.new()])  # rejected
count.new().options(after=[count.new()])  # rejected
count.new().options(if_blocker_fails="wait")  # rejected
