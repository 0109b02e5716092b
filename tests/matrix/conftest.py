def pytest_addoption(parser):
    parser.addoption("--most", type=int, metavar="N", help="train only N of the matrix's combinations, with as many pairs as these can have")
    parser.addoption("--pairs", action="store_true", help="every pair of choices, options of plugins among them")
    parser.addoption("--whole", action="store_true", help="every combination of plugins, accumulation, stages and ranks")
    parser.addoption("--pipelines", action="store_true", help="every combination of what a pipeline is made of, chunks among it, of a deeper model")
    parser.addoption("--threads", action="store_true", help="ranks are threads, and no communicator is used")
    parser.addoption("--steps", type=int, help="of every run of the matrix")
    parser.addoption("--processes", type=int, default=2, help="of the matrix, at a time; with --threads, runs")
    parser.addoption("--combination", metavar="'AXIS=CHOICE ...'", help="one combination of the matrix, as a failure prints it")
