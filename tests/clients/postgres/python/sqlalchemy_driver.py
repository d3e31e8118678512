"""SQLAlchemy over psycopg 3, psycopg2 and asyncpg: `sqlalchemy_driver.py URL`."""

import asyncio
import os
import socket
import sys

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

from checks import refused, run

URL = sa.make_url(sys.argv[1])
DRIVERS = ("psycopg", "psycopg2")


def engine(driver, **words):
    return sa.create_engine(URL.set(drivername=f"postgresql+{driver}"), **words)


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    tags: Mapped[dict] = mapped_column(sa.JSON, default=dict)
    books: Mapped[list["Book"]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(sa.ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


def a_schema_is_made_and_reflected():
    for driver in DRIVERS:
        made = engine(driver)
        Base.metadata.drop_all(made)
        Base.metadata.create_all(made)
        found = sa.MetaData()
        found.reflect(made)
        assert set(found.tables) >= {"author", "book"}
        assert [key.column.table.name for key in found.tables["book"].foreign_keys] == ["author"]
        made.dispose()


def sessions_save_load_and_delete():
    for driver in DRIVERS:
        made = engine(driver)
        Base.metadata.drop_all(made)
        Base.metadata.create_all(made)
        with Session(made) as session:
            author = Author(name="Ada", tags={"k": [1]})
            author.books = [Book(title=f"Book {number}") for number in range(50)]
            session.add(author)
            session.commit()
            assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 50
            loaded = session.scalars(sa.select(Author).options(selectinload(Author.books))).one()
            assert len(loaded.books) == 50 and loaded.tags == {"k": [1]}
            session.delete(loaded)
            session.commit()
            assert session.scalar(sa.select(sa.func.count()).select_from(Book)) == 0
        made.dispose()


def a_failed_flush_rolls_back_and_savepoints_help():
    for driver in DRIVERS:
        made = engine(driver)
        Base.metadata.drop_all(made)
        Base.metadata.create_all(made)
        with Session(made) as session:
            session.add(Author(name="Ada"))
            session.commit()
            session.add(Author(name="Ada"))
            refused(sa.exc.IntegrityError, session.commit)
            session.rollback()
            session.add(Author(name="Bob"))
            session.flush()
            try:
                with session.begin_nested():
                    session.add(Author(name="Ada"))
            except sa.exc.IntegrityError:
                pass
            session.commit()
            assert session.scalars(sa.select(Author.name).order_by(Author.name)).all() == ["Ada", "Bob"]
        made.dispose()


def a_pool_pings_before_it_lends():
    for driver in DRIVERS:
        made = engine(driver, pool_size=1, max_overflow=0, pool_pre_ping=True)
        with made.connect() as conn:
            assert conn.scalar(sa.text("select 1")) == 1
            raw = conn.connection.driver_connection
        # The connection breaks off while it is in the pool.
        with socket.socket(fileno=os.dup(raw.fileno())) as twin:
            twin.shutdown(socket.SHUT_RDWR)
        with made.connect() as conn:
            assert conn.scalar(sa.text("select 2")) == 2
        made.dispose()


def isolation_levels_of_an_engine():
    for driver in DRIVERS:
        made = engine(driver, isolation_level="REPEATABLE READ")
        with made.connect() as conn:
            assert conn.scalar(sa.text("show transaction_isolation")) == "repeatable read"
        with made.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.execute(sa.text("select 1"))
        made.dispose()


def many_rows_are_streamed_from_a_server_side_cursor():
    for driver in DRIVERS:
        made = engine(driver)
        with made.connect().execution_options(stream_results=True, max_row_buffer=100) as conn:
            result = conn.execute(sa.text("select generate_series(1, 5000) as n"))
            assert sum(row.n for row in result) == sum(range(5001))
        made.dispose()


def bulk_inserts_return_their_keys():
    for driver in DRIVERS:
        made = engine(driver)
        Base.metadata.drop_all(made)
        Base.metadata.create_all(made)
        with made.begin() as conn:
            rows = [{"name": f"author {number}", "tags": {}} for number in range(3000)]
            keys = conn.scalars(sa.insert(Author).returning(Author.id, sort_by_parameter_order=True), rows).all()
            assert len(set(keys)) == 3000
        made.dispose()


async def an_asynchronous_session():
    made = create_async_engine(URL.set(drivername="postgresql+asyncpg"), pool_size=3)
    async with made.begin() as conn:
        await conn.run_sync(Base.metadata.drop_all)
        await conn.run_sync(Base.metadata.create_all)

    async def work(mark):
        async with AsyncSession(made) as session:
            session.add(Author(name=f"author {mark}"))
            await session.commit()
            assert await session.scalar(sa.select(Author.name).where(Author.name == f"author {mark}"))

    await asyncio.gather(*[work(mark) for mark in range(30)])
    async with made.connect() as conn:
        assert await conn.scalar(sa.select(sa.func.count()).select_from(Author)) == 30
    await made.dispose()


CHECKS = [
    a_schema_is_made_and_reflected,
    sessions_save_load_and_delete,
    a_failed_flush_rolls_back_and_savepoints_help,
    a_pool_pings_before_it_lends,
    isolation_levels_of_an_engine,
    many_rows_are_streamed_from_a_server_side_cursor,
    bulk_inserts_return_their_keys,
    an_asynchronous_session,
]

if __name__ == "__main__":
    run(CHECKS)
