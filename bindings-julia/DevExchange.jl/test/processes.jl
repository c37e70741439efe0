# What shows only in a process of its own: how Julia starts and how it exits.

@testset "processes" begin
    # A process that does not end fails its test, with its output. On a busy machine the start may take longer.
    function is_cut_off(limit)
        said = try
            run_julia("print(stderr, \"so \"); print(\"far\"); sleep(3600)"; limit=limit)
        catch e
            sprint(showerror, e)
        end
        return said isa String && endswith(said, "\nso far")
    end
    @test any(is_cut_off, (5.0, 30.0, 180.0))
    # The deleters of tensors that are open at the exit are called once. Releases that foreign threads sent just before are
    # delivered. Nothing hangs or crashes. `puts` is the deleter of a foreign tensor: it writes the first byte of the struct,
    # which is its version.
    output, ended = run_julia("""
        using DevExchange
        include($(repr(joinpath(@__DIR__, "producers.jl"))))
        const DX = DevExchange
        open_to_the_end = []
        for k in 1:3
            p, calls = foreign_tensor([1.0])
            set!(p; deleter=cglobal(:puts))
            push!(open_to_the_end, import_dlpack(p))
        end
        forgotten() = (p = foreign_tensor([1.0])[1]; set!(p; deleter=cglobal(:puts)); import_dlpack(p); nothing)
        forgotten()
        GC.gc()
        drain()
        delete_on_foreign_threads([export_move(Tensor([k]; release=() -> Core.println("released"))) for k in 1:20])
        """; DEVEXCHANGE_TRACE=1)
    @test ended
    @test count(==('\x01'), output) == 4
    @test length(collect(eachmatch(r"^released$"m, output))) == 20
    @test occursin("devexchange: a tensor was not closed; its finalizer gave it up", output)
    # Whether there is a trace is decided once: later changes of the variable have no effect.
    output, ended = run_julia("""
        using DevExchange
        forgotten() = (Tensor([1.0]); nothing)
        for value in ("0", "1")
            ENV["DEVEXCHANGE_TRACE"] = value
            forgotten()
            is_found() = (GC.gc(); drain(); outstanding() == 0)
            timedwait(is_found, 300.0) === :ok || println("it is not found")
        end
        """; DEVEXCHANGE_TRACE="")
    @test ended && output == ""
    # The trace says where an exception came from. The caller gets its text only.
    for (trace, lines) in (("1", 1), ("", 0))
        output, ended = run_julia("""
            using DevExchange
            broken_source() = error("a broken source")
            stream = BatchStream(broken_source, Schema([Field("n", Int32)]))
            try
                next!(stream)
            catch e
                println(e.message)
            end
            """; DEVEXCHANGE_TRACE=trace)
        @test ended && occursin("a broken source", output)
        @test count("devexchange: a callback failed", output) == count("broken_source()", output) == lines
    end
    # A logger that throws does not get its exception into the library, which the call would not leave then.
    output, ended = run_julia("""
        using DevExchange
        include($(repr(joinpath(@__DIR__, "broken_logger.jl"))))
        schema = Schema([Field("n", Int32)])
        stream = BatchStream(() -> error("a broken source"), schema)
        for _ in 1:2
            try
                Base.CoreLogging.with_logger(() -> next!(stream), BrokenLogger())
            catch e
                println(e.message)
            end
        end
        foreach(close, (stream, schema))
        drain()
        println(outstanding(), " outstanding")
        """; DEVEXCHANGE_TRACE=1)
    @test ended && count("a broken source", output) == 2 && occursin("0 outstanding", output)
    # Releases within `atexit`, on this thread and on foreign ones. Handlers run in reverse order, and that of the queue is made
    # by `using`. After the queue has stopped, Julia's memory is left to the system, but a foreign producer still gets every
    # release.
    output, ended = run_julia("""
        atexit(() -> (release_all(late); Core.println("late: ", join((calls[] for (_, _, calls) in late), " "))))
        using DevExchange, Libdl
        include($(repr(joinpath(@__DIR__, "producers.jl"))))
        const DX = DevExchange
        # An export of Julia's memory, an export of a foreign producer's, and the counter of that producer's deleter.
        function lend()
            source, calls = foreign_tensor([1.0])
            own = export_move(Tensor([1.0, 2.0]; release=() -> Core.println("released")))
            return own, export_move(import_dlpack(source)), calls
        end
        early, late = [lend() for k in 1:4], [lend() for k in 1:4]
        function release_all(lent)
            delete_on_foreign_threads([own for (own, _, _) in lent[1:2]])
            foreach(((own, _, _),) -> dlpack_release(own), lent[3:4])
            foreach(((_, theirs, _),) -> dlpack_release(theirs), lent)
        end
        atexit(() -> (release_all(early); Core.println("early: ", join((calls[] for (_, _, calls) in early), " "))))
        """)
    @test ended && occursin("early: 1 1 1 1\n", output) && occursin("late: 1 1 1 1\n", output)
    @test count("released", output) == 4
    # Of the releases that are due at the exit, those that wait for ever cost only themselves: one that has been called already,
    # and one among the others. A release that drains does not wait for them.
    for being_called in ("yield()", "")
        output, ended = run_julia("""
            using DevExchange
            called(k) = (k in (1, 3) && wait(Condition()); k == 4 && drain(); sleep(0.001); Core.println("release ", k))
            foreach(close, [Tensor([1.0]; release=() -> called(k)) for k in 1:5])
            $being_called
            """; limit=60.0)
        @test ended && output == "release 2\nrelease 4\nrelease 5\n"
    end
    # An interrupt comes to the task that ran last, here the one that delivers. The program gets it, and deliveries go on.
    program = """
        using DevExchange
        Base.exit_on_sigint(false)
        function interrupted()
            delivered = tempname()
            wait_and_interrupt = "until [ -e \$delivered ]; do sleep 0.1; done; sleep 0.3; kill -INT \$(getpid())"
            run(`sh -c "(\$wait_and_interrupt) >/dev/null 2>&1 &"`)
            t = Tensor([1.0]; release=() -> touch(delivered))
            @async (sleep(0.1); close(t); sleep(600))
            try
                sleep(300)
            catch e
                println(typeof(e))
            end
        end
        interrupted()
        released = Ref(false)
        close(Tensor([1.0]; release=() -> released[] = true))
        println(timedwait(() -> released[], 300.0))
        """
    output, ended = run_julia(`--threads=1 -e $program`)
    @test ended && output == "InterruptException\nok\n"
    # An interrupt comes while C code runs. The batch that C returns is released. The same holds for an asynchronous stream.
    plain = """
        stream, producer = foreign_stream(ArrowArrayStream; batches=3, interrupts=2)
        s, take = import_arrow(stream), next!
        """
    asynchronous = """
        p, s, take = foreign_producer(batches=3, interrupts=2), AsyncReader(limit=3), receive
        produce(p, s) || error("no thread")
        """
    for begin_stream in (plain, asynchronous)
        program = """
            using DevExchange, Dates, Libdl
            const DX = DevExchange
            include($(repr(joinpath(@__DIR__, "producers.jl"))))
            include($(repr(joinpath(@__DIR__, "foreign.jl"))))
            Base.exit_on_sigint(false)
            function interrupted()
                $begin_stream
                close(next!(s))
                try
                    take(s)
                catch e
                    println(typeof(e))
                end
                println(taken(next!(s)))
                close(s)
            end
            before = outstanding()
            interrupted()
            GC.gc()
            drain()
            println(foreign_live(), " ", outstanding() - before)
            """
        output, ended = run_julia(`--threads=1 -e $program`)
        @test ended && output == "InterruptException\n3\n0 0\n"
    end
    # The interrupt comes while the failure of a source is put into words. The caller gets it; later calls throw an error.
    program = """
        using DevExchange
        Base.exit_on_sigint(false)
        struct Interrupting <: Exception end
        function Base.showerror(::IO, ::Interrupting)
            ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
            while unsafe_load(cglobal(:jl_signal_pending, Cint)) == 0
                Libc.systemsleep(0.001)
            end
        end
        function thrown(s)
            try
                next!(s)
            catch e
                return e
            end
        end
        s = BatchStream(() -> throw(Interrupting()), Schema([Field("n", Int32)]))
        println(typeof(thrown(s)), " ", thrown(s).message)
        """
    output, ended = run_julia(`--threads=1 -e $program`)
    @test ended && output == "InterruptException InterruptException:\n"
    # An interrupt comes during an export, which takes long if it copies. The caller does not get the struct, so it is released.
    program = """
        using DevExchange
        const DX = DevExchange
        Base.exit_on_sigint(false)
        for name in (:share, :move, :share_legacy, :move_legacy)
            place = getfield(DX, Symbol(:devx_tensor_export_, name))
            real, slow = place[], Symbol(:slow_, name)
            @eval function \$slow(tensor, request, out, error)
                status = ccall(\$real, DX.DevxStatus, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}),
                    tensor, request, out, error)
                ccall(:kill, Cint, (Cint, Cint), getpid(), 2)
                Libc.systemsleep(0.3)
                return status
            end
            place[] = @eval @cfunction(\$slow, DX.DevxStatus, (Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}, Ptr{Cvoid}))
        end
        for f in (export_share, export_move, export_share_legacy, export_move_legacy), copy in (:always, :if_needed)
            t = Tensor([1.0, 2.0])
            try
                f(t; copy=copy)
                println("not interrupted")
            catch e
                e isa InterruptException || rethrow()
            end
            close(t)
        end
        drain()
        println(outstanding(), " ", DX.rooted())
        """
    output, ended = run_julia(`--threads=1 -e $program`)
    @test ended && output == "0 0\n"
    # What a package makes while it is precompiled does not get into its cache, which could not keep the memory.
    mktempdir() do directory
        write(joinpath(directory, "AtTopLevel.jl"), """
            module AtTopLevel
            using DevExchange
            const DX = DevExchange
            said(f) = try (f(); "made") catch e sprint(showerror, e) end
            const ANSWERS = map(said, (() -> Schema([Field("x", "g")]), () -> allocate(Float64, 3, DX.CPU),
                () -> allocate_shared(Float64, 3), () -> host_only_manager(), () -> pool_manager(),
                () -> Tensor([1.0]), () -> Batch((x=[1],)), () -> Batch([ArrayBuilder("x", "n", 1)]),
                () -> import_schema(Ref(ArrowSchema())), () -> import_arrow(Ref(ArrowArray()), Ref(ArrowSchema())),
                () -> DeviceStream(DX.cuda(0)), () -> AsyncReader(), () -> IpcServer("x"), () -> MemoryManager(r -> nothing)))
            end
            """)
        program = "push!(LOAD_PATH, $(repr(directory))); using AtTopLevel; foreach(println, AtTopLevel.ANSWERS)"
        output, ended = run_julia(program; JULIA_DEPOT_PATH=join([directory; DEPOT_PATH], ':'))
        answers = filter(line -> occursin("DEVX_UNSUPPORTED", line), split(output, '\n'))
        ok = ended && length(answers) == 14 && all(line -> occursin("`__init__`", line), answers)
        ok || println(output)
        @test ok
    end
    # The libraries are missing.
    output, ended = run_julia("using DevExchange"; DEVEXCHANGE_LIBRARY_DIR=tempdir())
    @test !ended && occursin("libdevexchange", output) && occursin("was not found", output) &&
        occursin("DEVEXCHANGE_LIBRARY_DIR", output)
    # The queue has another version.
    mktempdir() do directory
        cp(DX.library_path(), joinpath(directory, "libdevexchange.so"))
        source = joinpath(directory, "queue.c")
        functions = filter(!=(:devx_julia_version), collect(DX.QUEUE_FUNCTIONS))
        write(source, join("void $name(void) {}\n" for name in functions),
            "char const *devx_julia_version(void) { return \"99.0.0\"; }\n")
        run(`$(get(ENV, "CC", "cc")) -shared -fPIC -o $(joinpath(directory, "libdevexchange_julia.so")) $source`)
        output, ended = run_julia("using DevExchange"; DEVEXCHANGE_LIBRARY_DIR=directory)
        @test !ended && occursin("has version 99.0.0, this package needs $(DX.PACKAGE_VERSION)", output)
    end
end

# `Pkg.test` runs the tests in an environment with nothing but what the project names for them.
@testset "processes: the project names what the tests load" begin
    project = read(joinpath(@__DIR__, "..", "Project.toml"), String)
    packages = match(r"\[deps\]\n(.*?)\n\n"s, project)[1]
    for_tests = match(r"\ntest = \[(.*)\]", project)[1]
    named = ["DevExchange"; first.(split.(split(packages, '\n'), " = ")); split(for_tests, r"[\", ]+")]
    for file in filter(endswith(".jl"), readdir(@__DIR__)), line in eachline(joinpath(@__DIR__, file))
        loaded = match(r"^(?:using|import) ([\w, ]+)", line)
        loaded === nothing || @test issubset(split(loaded[1], ", "), named)
    end
end
