import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(funcName)s %(lineno)d %(threadName)s %(processName)s %(message)s")
def f():
    logging.getLogger("x").info("hello %s", "you")
    logging.warning("with stack", stack_info=True)
f()
logging.exception("no exception")
