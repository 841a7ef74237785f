/* Kinds of characters: see kinds.h. */
#include "nn/text/kinds.h"

#include <unictype.h>

bool
exo_utf8_is_space(uint32_t code)
{
    return uc_is_property_white_space(code);
}

bool
exo_utf8_is_word(uint32_t code)
{
    return uc_is_property_alphabetic(code) || uc_is_property_join_control(code) ||
           uc_is_general_category(code, UC_CATEGORY_M) ||
           uc_is_general_category(code, UC_CATEGORY_Nd) ||
           uc_is_general_category(code, UC_CATEGORY_Pc);
}
