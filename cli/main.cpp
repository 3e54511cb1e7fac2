// cli/main.cpp -- The vitune command.
int main() { return 0; }
