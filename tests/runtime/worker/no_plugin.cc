// A shared object that knows nothing of Mini-Ray.

extern "C" int Answer() { return 42; }
