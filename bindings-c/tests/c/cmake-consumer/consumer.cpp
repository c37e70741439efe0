#include <devexchange.h>

#include <iostream>

int main() {
    std::cout << devx_version_string() << '\n';
    return devx_version() != 0 ? 0 : 1;
}
