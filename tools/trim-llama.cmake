# Read by CMake right after llama-cpp-python's own project() line. A normal variable
# hides the cache entry of the same name, so the chat helper library, which the
# binding builds but never loads, stays out: the build takes a third of the time.
set(LLAMA_BUILD_COMMON OFF)
